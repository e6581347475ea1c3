package fleet

import (
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
