package fleet

import (
	"slices"
	"strings"
	"testing"
)

// RG-06
func TestClusterIdentity(t *testing.T) {
	t.Parallel()
	if got, want := ClusterUser("c1", "a1"), "system:open-cluster-management:c1:a1"; got != want {
		t.Errorf("ClusterUser = %q, want %q", got, want)
	}
	want := []string{"system:open-cluster-management:c1", "system:open-cluster-management:managed-clusters"}
	if got := ClusterGroups("c1"); !slices.Equal(got, want) {
		t.Errorf("ClusterGroups = %q, want %q", got, want)
	}
	if got, want := AWSClusterGroup("c1"), "open-cluster-management:c1"; got != want {
		t.Errorf("AWSClusterGroup = %q, want %q", got, want)
	}
}

// RG-06, RG-13
func TestParseClusterUser(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		user, cluster, agent string
	}{
		{ClusterUser("c1", "a1"), "c1", "a1"},
		{ClusterUser("cluster", "addon"), "cluster", "addon"},
		{user: ""},
		{user: "c1:a1"},
		{user: "system:open-cluster-management:"},
		{user: "system:open-cluster-management:c1"},
		{user: "system:open-cluster-management:c1:"},
		{user: "system:open-cluster-management::a1"},
		{user: "system:open-cluster-management:c1:a1:more"},
		{user: "system:open-cluster-management:c1:a1:"},
		{user: " system:open-cluster-management:c1:a1"},
		{user: "System:open-cluster-management:c1:a1"},
		{user: AddOnUser("c1", "proxy", "a1")},
		{user: AddOnTokenUser("c1", "proxy")},
	} {
		cluster, agent, err := ParseClusterUser(test.user)
		if cluster != test.cluster || agent != test.agent || (err == nil) != (test.cluster != "") {
			t.Errorf("ParseClusterUser(%q) = %q, %q, %v; want %q, %q", test.user, cluster, agent, err, test.cluster, test.agent)
		}
		if err != nil && !strings.Contains(err.Error(), "system:open-cluster-management:CLUSTER:AGENT") {
			t.Errorf("ParseClusterUser(%q): the error %q does not say what would be right", test.user, err)
		}
	}
}

func TestReservedClusterName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"managed-clusters": true, // its group would be that of all clusters
		"cluster-proxy":    true, // its group for AWS would be that of the agents of OCM's add-on on all clusters
		"registration":     true, // its ClusterRole would be the one all clusters share
		"work":             true,
		"kube-system":      true, // its namespace would be one that the hub has for itself
		"default":          true,

		"open-cluster-management":             true,
		"open-cluster-management-hub":         true,
		"open-cluster-management-addon":       true, // its agent would find there what leads to services of all clusters
		"open-cluster-management-credentials": true, // and here credentials of all clusters

		"cluster1":  false,
		"bootstrap": false,
		"kube-1":    false,
	} {
		if got := ReservedClusterName(name); got != want {
			t.Errorf("ReservedClusterName(%q) = %v, want %v", name, got, want)
		}
	}
}

// RG-61, AF-04
func TestAddOnIdentity(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		AddOnUser("c1", "proxy", "a1"): "system:open-cluster-management:cluster:c1:addon:proxy:agent:a1",
		strings.Join(AddOnGroups("c1", "proxy"),
			" "): "system:open-cluster-management:cluster:c1:addon:proxy system:open-cluster-management:addon:proxy",
		AddOnDNSName("proxy"):                                               "proxy.addon.open-cluster-management.io",
		AddOnCSRGenerateName("c1", "proxy"):                                 "addon-c1-proxy-",
		AddOnTokenUser("c1", "proxy"):                                       "system:serviceaccount:c1:proxy-agent",
		AddOnHubKubeconfigSecret("proxy"):                                   "proxy-hub-kubeconfig",
		AddOnClientCertSecret("proxy", "open-cluster-management.io/signer"): "proxy-open-cluster-management.io-signer-client-cert",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// R10
func TestAgentClusters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		groups []string
		want   string
	}{
		{groups: append(ClusterGroups("c1"), GroupAuthenticated), want: "c1"},
		{groups: []string{AWSClusterGroup("c1"), GroupAuthenticated}, want: "c1"},
		{groups: append(ClusterGroups("c1"), AWSClusterGroup("c1")), want: "c1"},
		{groups: append(ClusterGroups("c1"), ClusterGroups("c2")...), want: "c1 c2"},
		{groups: append(AddOnGroups("c1", "a"), GroupAuthenticated)},
		{groups: []string{GroupManagedClusters, GroupBootstrap, GroupAuthenticated, "system:masters", "c1"}},
		{groups: []string{ClusterGroup(""), AWSClusterGroup("")}},
	} {
		if got := strings.Join(AgentClusters(test.groups), " "); got != test.want {
			t.Errorf("AgentClusters(%q) = %q, want %q", test.groups, got, test.want)
		}
	}
}

// HC-04 R10: the chart makes the service account in the namespace of its release, whichever that is.
func TestIsJoining(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]bool{
		ServiceAccountUser(NamespaceOperators, ServiceAccountBootstrap):                      true,
		ServiceAccountUser("hub", ServiceAccountBootstrap):                                   true,
		ServiceAccountUser("hub", "my-"+ServiceAccountBootstrap):                             false,
		"hosting-cluster:" + ServiceAccountUser(NamespaceOperators, ServiceAccountBootstrap): false,
		ServiceAccountBootstrap:               false,
		ServiceAccountUser("hub", "deployer"): false,
		ClusterUser("c1", "a1"):               false,
	} {
		if got := IsJoining(user, []string{GroupAuthenticated}); got != want {
			t.Errorf("IsJoining(%q) = %v", user, got)
		}
	}
	if !IsJoining("system:bootstrap:abcdef", []string{GroupBootstrap, GroupAuthenticated}) {
		t.Error("a bootstrap token does not count")
	}
}

// Gap A2
func TestIsReservedSigner(t *testing.T) {
	t.Parallel()
	for signer, want := range map[string]bool{
		SignerKubeAPIServerClient: true, "kubernetes.io/kubelet-serving": true, "a.kubernetes.io/b": true, "a.k8s.io/b": true, SignerGRPC: true,
		"example.com/hello": false, "open-cluster-management.io/proxy-agent-signer": false, "notkubernetes.io/a": false, "": false,
	} {
		if got := IsReservedSigner(signer); got != want {
			t.Errorf("IsReservedSigner(%q) = %t, want %t", signer, got, want)
		}
	}
}

// "The identity refused from then on": whoever acts for a cluster is known by that, however it got its credential, and nobody else is.
func TestClustersBehind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		user   string
		groups []string
		want   []string
	}{
		{"system:open-cluster-management:c1:agent1",
			[]string{"system:open-cluster-management:c1", "system:open-cluster-management:managed-clusters"}, []string{"c1"}},
		{"system:open-cluster-management:c1:agent1", nil, []string{"c1"}},
		{"arn", []string{"open-cluster-management:c1"}, []string{"c1"}},
		{"system:open-cluster-management:cluster:c1:addon:a:agent:a-agent", []string{"system:open-cluster-management:cluster:c1:addon:a",
			"system:open-cluster-management:addon:a"}, []string{"c1"}},
		{"system:open-cluster-management:cluster:c1:addon:a:agent:a-agent", nil, []string{"c1"}},
		{"whoever the add-on says", []string{"system:open-cluster-management:cluster:c1:addon:a"}, []string{"c1"}},
		{"system:serviceaccount:c1:a-agent", []string{"system:serviceaccounts", "system:serviceaccounts:c1"}, []string{"c1"}},
		{"system:open-cluster-management:c1:agent1", []string{"system:open-cluster-management:c2"}, []string{"c2", "c1"}},
		{"system:serviceaccount:kube-system:a", []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}, nil},
		{"system:serviceaccount:default:a", nil, nil},
		{"system:serviceaccount:open-cluster-management:a", nil, nil},
		{"system:serviceaccount:open-cluster-management-hub:a", nil, nil},
		{"system:serviceaccount:default:a", []string{"system:open-cluster-management:c1"}, []string{"c1"}},
		{"ann", []string{"system:masters", "system:authenticated"}, nil},
		{"system:bootstrap:abcdef", []string{"system:bootstrappers:managedcluster"}, nil},
		{"system:open-cluster-management:", []string{"system:open-cluster-management:addon:a", "system:open-cluster-management:managed-clusters"},
			nil},
	} {
		if got := ClustersBehind(test.user, test.groups); !slices.Equal(got, test.want) {
			t.Errorf("%s of %v acts for %v, want %v", test.user, test.groups, got, test.want)
		}
	}
}
