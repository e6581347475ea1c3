package hub_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// accounts are those of the components that a hub may have.
var accounts = []string{"registration-controller-sa", "placement-controller-sa", "work-controller-sa", "addon-manager-controller-sa",
	"registration-webhook-sa", "work-webhook-sa", "addon-webhook-sa"}

// CM-17: a component that does not run has no service account, and no permission is there for it, or names it.
func TestRightsOfWhatRuns(t *testing.T) {
	t.Parallel()
	names := hub.Names{Namespace: "blue", ClusterManager: "indigo"}
	for account, only := range map[string][]string{
		"":                            nil,
		"work-controller-sa":          {"open-cluster-management:indigo-work:controller"},
		"addon-manager-controller-sa": {"open-cluster-management:indigo-addon-manager:controller"},
		"placement-controller-sa": {"open-cluster-management:indigo-placement:controller",
			"open-cluster-management:indigo-placement:authentication-reader"},
		"addon-webhook-sa": {"open-cluster-management:indigo-addon:webhook"},
	} {
		running := slices.DeleteFunc(slices.Clone(accounts), func(a string) bool { return a == account })
		want := map[string]bool{}
		for _, object := range hub.Rights(names, accounts) {
			if object.GetName() != account && !slices.Contains(only, object.GetName()) {
				want[fmt.Sprintf("%T %s", object, object.GetName())] = true
			}
		}
		got := map[string]bool{}
		for _, object := range hub.Rights(names, running) {
			got[fmt.Sprintf("%T %s", object, object.GetName())] = true
			content, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if account != "" && strings.Contains(string(content), account) {
				t.Errorf("%T %s names %s", object, object.GetName(), account)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("without %q: %v, want %v", account, got, want)
		}
	}
}

// All objects are for the hub that is asked for, and nothing of them names another one.
func TestNames(t *testing.T) {
	t.Parallel()
	names := hub.Names{Namespace: "blue", ClusterManager: "indigo"}
	for kind, objects := range map[string][]client.Object{
		"rights": hub.Rights(names, accounts), "policies": hub.Policies(names), "grpc": hub.GRPC(names),
		"profiles": hub.ClusterProfiles(names), "importer": hub.ClusterImporter(names), "applications": hub.Applications(names),
		"decisions of the SIG": hub.SIGPlacementDecisions(names),
	} {
		if len(objects) == 0 {
			t.Errorf("no %s", kind)
		}
		for _, object := range objects {
			content, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []string{"open-cluster-management-hub", "cluster-manager"} {
				if strings.Contains(string(content), other) {
					t.Errorf("%s %s names %s", kind, object.GetName(), other)
				}
			}
		}
	}
}

// The services of webhooks have the same names in every hub.
func TestServicesOfWebhooks(t *testing.T) {
	t.Parallel()
	services := map[string]bool{}
	for _, object := range hub.Webhooks(hub.Names{Namespace: "blue", ClusterManager: "indigo"}) {
		content, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(content); strings.Contains(text, "indigo") || strings.Contains(text, "open-cluster-management-hub") {
			t.Errorf("%s is\n%s", object.GetName(), text)
		}
		for line := range strings.SplitSeq(string(content), "\n") {
			if name, found := strings.CutPrefix(strings.TrimSpace(line), "name: cluster-manager-"); found {
				services[name] = true
			}
		}
	}
	if len(services) != 3 || !services["registration-webhook"] || !services["work-webhook"] || !services["addon-webhook"] {
		t.Errorf("the services are %v", services)
	}
}

// What clusters join with is not the operator's to remove.
func TestRightsWithoutJoining(t *testing.T) {
	t.Parallel()
	for _, object := range hub.Rights(hub.Names{Namespace: "open-cluster-management-hub", ClusterManager: "cluster-manager"}, accounts) {
		if strings.Contains(object.GetName(), "bootstrap") || object.GetNamespace() == "open-cluster-management" {
			t.Errorf("%T %s", object, object.GetName())
		}
	}
}

// The policies name the namespaces that no cluster has as all other code knows them.
func TestPoliciesReserveNames(t *testing.T) {
	t.Parallel()
	policies, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`in \["default", ([^]]*)\]`).FindAllStringSubmatch(string(policies), -1)
	if len(lists) == 0 {
		t.Fatal("no policy names them")
	}
	want := []string{"kube-system", "kube-public", "kube-node-lease", fleet.NamespaceOperators, fleet.NamespaceHub, fleet.NamespaceAddOn,
		fleet.NamespaceCredentials}
	for _, list := range lists {
		got := strings.Split(strings.ReplaceAll(list[1], `"`, ""), ", ")
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		for _, name := range got {
			if !fleet.ReservedClusterName(name) {
				t.Errorf("a cluster may be called %s", name)
			}
		}
	}
}
