package fleet

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// WK-03
func TestHubHash(t *testing.T) {
	t.Parallel()
	hash := HubHash("https://hub.example.com:6443")
	// printf %s https://hub.example.com:6443 | sha256sum
	const want = "badbd4de19b639898c31f168ba913abc5d9e2bbcf25d70e3ee016190492578ae"
	if hash != want {
		t.Errorf("HubHash = %q, want %q", hash, want)
	}
	if got := AppliedManifestWorkName(hash, "work1"); got != want+"-work1" {
		t.Errorf("AppliedManifestWorkName = %q, want %q", got, want+"-work1")
	}
}

// WK-03: a work with a name of any length that the API server takes has an AppliedManifestWork, of which the name is valid and no other
// work's.
func TestAppliedManifestWorkNames(t *testing.T) {
	t.Parallel()
	hash := HubHash("https://hub.example.com:6443")
	seen := map[string]bool{}
	for _, work := range []string{
		strings.Repeat("a", 188), strings.Repeat("a", 189), strings.Repeat("a", 253), strings.Repeat("a", 252) + "b",
		strings.Repeat("a", 170) + strings.Repeat("-", 20) + "a", strings.Repeat("a.", 126) + "a", "a" + strings.Repeat("-", 251) + "a",
	} {
		name := AppliedManifestWorkName(hash, work)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || !strings.HasPrefix(name, hash+"-") {
			t.Errorf("%q of %q: %s", name, work, strings.Join(problems, ", "))
		}
		if name != hash+"-"+work && len(hash+"-"+work) <= 253 {
			t.Errorf("%q is shortened to %q", work, name)
		}
		if seen[name] {
			t.Errorf("%q is that of another work, too", name)
		}
		seen[name] = true
	}
}

// MS-04: the labels of an agent are valid, and shared with the next agent of the cluster for the hub, and with itself at another hub, only.
func TestServiceAccountsLabels(t *testing.T) {
	t.Parallel()
	own := ServiceAccountsLabels("c1", HubHash("https://one"), "a")
	for _, label := range own {
		if problems := validation.IsQualifiedName(label); len(problems) > 0 || !IsReservedLabel(label) {
			t.Errorf("%q is no label: %s", label, strings.Join(problems, ", "))
		}
	}
	for name, test := range map[string]struct {
		cluster, hub, agent string
		shared              int
	}{
		"itself":            {"c1", "https://one", "a", 2},
		"the next agent":    {"c1", "https://one", "b", 1},
		"the next hub":      {"c1", "https://two", "a", 1},
		"of another hub":    {"c1", "https://two", "b", 0},
		"another cluster's": {"c2", "https://one", "a", 0},
	} {
		shared := 0
		for _, label := range ServiceAccountsLabels(test.cluster, HubHash(test.hub), test.agent) {
			if slices.Contains(own, label) {
				shared++
			}
		}
		if shared != test.shared {
			t.Errorf("%s: %d labels are shared, want %d", name, shared, test.shared)
		}
	}
}

// RG-43
func TestManagedNamespaceLabel(t *testing.T) {
	t.Parallel()
	hash := HubHash("https://hub.example.com:6443")
	label := ManagedNamespaceLabel(hash)
	if want := "clusterset.open-cluster-management.io/" + hash[:63]; label != want {
		t.Errorf("ManagedNamespaceLabel = %q, want %q", label, want)
	}
	if problems := validation.IsQualifiedName(label); len(problems) > 0 {
		t.Errorf("%q is no label: %s", label, strings.Join(problems, ", "))
	}
	if got, want := ManagedNamespaceLabel("ab"), "clusterset.open-cluster-management.io/ab"; got != want {
		t.Errorf("ManagedNamespaceLabel of a short hash = %q, want %q", got, want)
	}
}

// MR-02, gap W13: what is too long for a label is cut, and still nobody else's.
func TestManifestWorkReplicaSetKey(t *testing.T) {
	t.Parallel()
	if got := ManifestWorkReplicaSetKey("ns", "web"); got != "ns.web" {
		t.Errorf("the key of ns/web is %q", got)
	}
	fits, one, two := strings.Repeat("x", 60), strings.Repeat("x", 61), strings.Repeat("x", 62)
	if got := ManifestWorkReplicaSetKey("ns", fits); got != "ns."+fits {
		t.Errorf("a key of 63 characters became %q", got)
	}
	if ManifestWorkReplicaSetKey("ns", one) == ManifestWorkReplicaSetKey("ns", two) {
		t.Error("two sets have the same key")
	}
	for _, name := range []string{one, two, strings.Repeat("x.", 100) + "x"} {
		if key := ManifestWorkReplicaSetKey("ns", name); len(validation.IsValidLabelValue(key)) > 0 {
			t.Errorf("%q is no value of a label", key)
		}
	}
}

// Whatever a user is called, its label is one.
func TestRequesterLabel(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for user, want := range map[string]string{
		"system:bootstrap:abcdef": "system.bootstrap.abcdef",
		"system:serviceaccount:open-cluster-management:agent-registration-bootstrap": "system.serviceaccount.open-cluster-management.",
		"jane@example.com": "", ":": "", "é": "",
	} {
		got := RequesterLabel(user)
		if !strings.HasPrefix(got, want) || len(validation.IsValidLabelValue(got)) > 0 || seen[got] != "" {
			t.Errorf("%q: %q, which is also that of %q", user, got, seen[got])
		}
		seen[got] = user
	}
}
