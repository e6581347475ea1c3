package eks

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub1"
	managedARN = "arn:aws:eks:eu-central-1:210987654321:cluster/spoke1"
	// suffix is md5 of 123456789012#hub1#210987654321#spoke1.
	suffix = "2f086c84e7dcf5c5a3f63af41e669219"
)

func pair(t *testing.T) Pair {
	t.Helper()
	p, err := ParsePair(hubARN, managedARN)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// CM-11: an ARN is of an EKS cluster, all of it.
func TestParse(t *testing.T) {
	t.Parallel()
	if got, err := Parse(hubARN); err != nil || got != (Cluster{Region: "us-west-2", Account: "123456789012", Name: "hub1"}) ||
		got.ARN() != hubARN {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"", "hub1", " " + hubARN, hubARN + "\n", hubARN + "/x", "arn:aws:eks:us-west-2:1234:cluster/hub1", "arn:aws:iam::123456789012:role/hub1",
		"arn:aws-cn:eks:us-west-2:123456789012:cluster/hub1",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), "arn:aws:eks:REGION") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := ParsePair(hubARN, "x"); err == nil || !strings.Contains(err.Error(), "managed cluster") {
		t.Errorf("a wrong managed cluster: %v", err)
	}
}

// CM-11, KL-18, RG-52: both sides work out the names of roles by themselves, so they are fixed.
func TestNames(t *testing.T) {
	t.Parallel()
	p := pair(t)
	for got, want := range map[string]string{
		p.Suffix():                 suffix,
		p.HubRole():                "ocm-hub-" + suffix,
		p.HubRoleARN():             "arn:aws:iam::123456789012:role/ocm-hub-" + suffix,
		p.ManagedRoleARN():         "arn:aws:iam::210987654321:role/ocm-managed-cluster-" + suffix,
		p.Hub.IdentityCreatorARN(): "arn:aws:iam::123456789012:role/hub1_managed-cluster-identity-creator",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for name, want := range map[string]bool{
		p.HubRole(): true, "ocm-hub-": false, "ocm-hub-00": false, "Admin": false, "ocm-hub-" + strings.Repeat("z", 32): false,
	} {
		if IsHubRole(name) != want {
			t.Errorf("%s is a role of a hub: %v", name, !want)
		}
	}
}

// RG-52: only the role of this managed cluster becomes the role on the hub.
func TestTrustPolicy(t *testing.T) {
	t.Parallel()
	text, err := pair(t).TrustPolicy()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Version": "2012-10-17", "Statement": [{
		"Effect": "Allow",
		"Principal": {"AWS": "arn:aws:iam::210987654321:role/ocm-managed-cluster-2f086c84e7dcf5c5a3f63af41e669219"},
		"Action": "sts:AssumeRole",
		"Condition": {"StringEquals": {
			"aws:PrincipalTag/hub_cluster_account_id": "123456789012",
			"aws:PrincipalTag/hub_cluster_name": "hub1",
			"aws:PrincipalTag/managed_cluster_account_id": "210987654321",
			"aws:PrincipalTag/managed_cluster_name": "spoke1"
		}}
	}]}`
	var got, wanted any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("trust policy %s, want %s", text, want)
	}
}

// RG-52: annotations that are not those of a cluster and this hub are refused, with what would be right.
func TestVerify(t *testing.T) {
	t.Parallel()
	p := pair(t)
	if got, err := Verify(p.Hub, p.Annotations()); err != nil || got != p || !Claims(p.Annotations()) {
		t.Errorf("%+v, %v", got, err)
	}
	if Claims(map[string]string{"other": "x"}) {
		t.Error("a cluster without annotations claims to be one of AWS")
	}
	other := p
	other.Managed.Name = "spoke2"
	for name, test := range map[string]struct{ key, value, want string }{
		"no ARN":                       {fleet.AnnotationManagedClusterARN, "", `"" is not the ARN`},
		"no suffix":                    {fleet.AnnotationManagedClusterIAMRoleSuffix, "", suffix},
		"suffix of another cluster":    {fleet.AnnotationManagedClusterIAMRoleSuffix, other.Suffix(), "see whether the agent has the ARN of this hub"},
		"ARN of another cluster":       {fleet.AnnotationManagedClusterARN, other.Managed.ARN(), other.Suffix()},
		"ARN of something else in AWS": {fleet.AnnotationManagedClusterARN, "arn:aws:iam::1:role/x", "is not the ARN of an EKS cluster"},
	} {
		annotations := maps.Clone(p.Annotations())
		annotations[test.key] = test.value
		if _, err := Verify(p.Hub, annotations); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, test.want)
		}
	}
}

// CM-11, RG-14: a pattern matches all of an ARN or nothing.
func TestPatterns(t *testing.T) {
	t.Parallel()
	managed := pair(t).Managed
	for pattern, want := range map[string]bool{
		managedARN: true, "arn:aws:eks:eu-central-1:210987654321:cluster/.*": true, "a|" + managedARN: true,
		"cluster/spoke1": false, "arn:aws:eks:eu-central-1:210987654321:cluster/spoke": false, managedARN + "0|x": false, "arn": false,
	} {
		patterns, err := ParsePatterns([]string{"nothing", pattern})
		if err != nil {
			t.Fatal(err)
		}
		if patterns.Match(managed) != want {
			t.Errorf("%s matches: %v", pattern, !want)
		}
	}
	for _, text := range []string{"", "("} {
		if _, err := ParsePatterns([]string{text}); err == nil || !strings.Contains(err.Error(), "arn:aws:eks") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A text that is accepted as an ARN is how that of the cluster is written.
func FuzzParse(f *testing.F) {
	f.Add(hubARN)
	f.Add(managedARN + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if cluster, err := Parse(text); err == nil && cluster.ARN() != text {
			t.Errorf("%q is read as %q", text, cluster.ARN())
		}
	})
}
