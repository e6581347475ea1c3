package docs

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const finalizersPage = "finalizers.md"

// ways are the tests of each case of the page, by its section and the first words of its row.
var ways = map[string]map[string][]string{
	"ManagedCluster": {
		"the agent never": {"internal/hub/registration/cleanup.TestDeleting", "test/integration/registration.TestDeleteLostCluster"},
		"a work or add-on has a finalizer of others": {"internal/hub/registration/cleanup.TestDeleting"},
		"the manager of an add-on is gone":           {"internal/hub/registration/cleanup.TestDeleting"},
		"the cluster is denied":                      {"internal/hub/registration/accept.TestDeniedAndDeletedClusterFinishes"},
		"the cluster is cut off":                     {"internal/hub/registration/cleanup.TestNobodyWaitsForACutOffCluster"},
		"the agent was lost and is back":             {"internal/agent/registration/status.TestAvailabilityDuringDeletion"},
		"the namespace was deleted first":            {"internal/hub/registration/accept.TestNamespaceIsDeleted"},
		"the finalizers were taken off by hand": {
			"internal/hub/registration/cleanup.TestAbandonedNamespace",
			"internal/hub/registration/accept.TestWhatGoesWithCluster",
		},
		"the gate `ResourceCleanup` is off": {
			"internal/hub/registration/cleanup.TestOff",
			"internal/hub/registration/accept.TestDeletionWaitsForWorksThatAreKept",
		},
		"AWS refuses":                           {"internal/hub/registration/awsaccess.TestDelete"},
		"the hub does not use AWS IAM any more": {"internal/hub/registration/awsaccess.TestWithoutDriver"},
	},
	"ManifestWork": {
		"objects on the cluster do not go": {
			"internal/agent/work/conditions.TestDeletingSaysWhy",
			"test/integration/works.TestDeletionWaitsForObjects",
		},
		"the agent is gone, the cluster stays": {"internal/hub/work/unattended.TestDeleting"},
		"the cluster is denied":                {"internal/agent/hubclient.TestWorksByName", "internal/hub/work/unattended.TestDeleting"},
		"the cluster is cut off":               {"internal/hub/work/unattended.TestDeleting"},
		"the cluster is being deleted": {
			"internal/hub/registration/cleanup.TestDeleting",
			"internal/hub/registration/cleanup.TestAbandonedNamespace",
		},
		"the namespace is being deleted": {"internal/hub/registration/accept.TestNamespaceIsDeleted"},
		"the hub does not answer":        {"internal/agent/work/deletion.TestHubGoneForAnHour"},
		"the work driver was changed":    {"internal/broker/resources.TestWorkStatus", "internal/agent/brokerapi.TestWork"},
	},
	"AppliedManifestWork": {
		"its ManifestWork, the hub's record": {"internal/agent/work/deletion.TestWhoIsEvicted", "internal/agent/work/deletion.TestGracePeriod"},
		"the hub does not answer":            {"internal/agent/work/deletion.TestHubGoneForAnHour"},
		"its objects do not go":              {"internal/agent/work/deletion.TestHeldObject"},
		"the agent was uninstalled": {
			"internal/operator/klusterlet.TestAppliedWorksAreLetGo",
			"test/integration/install.TestKlusterletSingleton",
		},
		"the agent was removed otherwise": {"internal/cli/install.TestUnjoinForce"},
	},
	"ManifestWorkReplicaSet": {
		"`Background`":                      {"internal/hub/work/replicaset.TestDeletion"},
		"`Foreground`, and works do not go": {"internal/hub/work/replicaset.TestDeletion"},
		"the placement, or its namespace":   {"internal/hub/work/replicaset.TestDeletionWaitsForItsOwn"},
		"the gate `ManifestWorkReplicaSet`": {"internal/hub/work/replicaset.TestDeletionWithoutGate", "internal/hub.TestFeatureGates"},
		"no controllers of works run":       {"internal/operator/clustermanager.TestNoWorkDriver"},
	},
	"ManagedClusterAddOn": {
		"hooks fail": {"addon/internal/workload.TestFailedHook", "addon/internal/workload.TestHookTimeout"},
		"the cluster, or the hosting": {
			"addon/internal/workload.TestHookTimeout",
			"addon/internal/workload.TestHooksOfADeniedClusterEnd",
			"addon/internal/workload.TestHostedRemoval",
			"addon/internal/workload.TestHostedRemovalFromADeniedCluster",
		},
		"the cluster is cut off": {
			"addon/internal/workload.TestHooksOfADeniedCluster",
			"addon/internal/workload.TestHooksWithoutCluster",
			"addon/internal/workload.TestHostingClusterIsGone",
			"addon/internal/workload.TestHostedCleanupOfADeniedCluster",
		},
		"other add-ons need it": {"addon/internal/workload.TestHooks", "addon/internal/installation.TestDependencies"},
		"the namespace is being deleted": {
			"addon/internal/workload.TestHooksInANamespaceThatGoes",
			"addon/internal/installation.TestRemovalInANamespaceThatGoes",
		},
		"the ClusterManagementAddOn was": {
			"internal/hub/addon/owner.TestOwner",
			"test/integration/addons.TestAddOnDeletionOrders",
			"test/integration/addons.TestAddOnHooksWithoutCatalogue",
		},
		"no manager runs": {"internal/hub/addon/progress.TestDeletionWithoutManager"},
	},
	"ClusterManager and Klusterlet": {
		"objects of the hub do not go":    {"internal/operator/clustermanager.TestRemaining", "test/integration/install.TestClusterManager"},
		"the API server of a hosted hub":  {"internal/operator/clustermanager.TestRemovalNamesTheWayOut"},
		"the managed cluster of a hosted": {"internal/operator/klusterlet.TestGiveUp", "test/integration/install.TestKlusterletUnreachable"},
		"the managed cluster refuses":     {"internal/operator/klusterlet.TestRemovalNamesTheWayOut"},
		"the hub of a Klusterlet is gone": {"test/integration/install.TestKlusterletSingleton"},
		"the operator is uninstalled":     {"test/integration/cli.TestInit", "test/integration/cli.TestJoinInCluster"},
	},
}

// TestFinalizers keeps the page, the code and the tests in step: each finalizer that the code sets is on the page, and each case on it has
// tests that exist.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(finalizersPage)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../internal/machinery/fleet/finalizers.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^\s+Finalizer\w+ += "([^"]+)"$`).FindAllStringSubmatch(string(source), -1) {
		_, name, _ := strings.Cut(found[1], "/")
		if !strings.Contains(string(content), "`"+found[1]+"`") && !strings.Contains(string(content), "`…/"+name+"`") {
			t.Errorf("%s lacks the finalizer %s", finalizersPage, found[1])
		}
	}
	functions, _ := readTests(t)
	seen := map[string]bool{}
	section := ""
	for line := range strings.SplitSeq(string(content), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		row, isRow := strings.CutPrefix(line, "| ")
		if !isRow || ways[section] == nil || strings.HasPrefix(row, "case |") {
			continue
		}
		prefixes := slices.DeleteFunc(slices.Collect(maps.Keys(ways[section])), func(p string) bool { return !strings.HasPrefix(row, p) })
		if len(prefixes) != 1 {
			t.Errorf("%s, %s: %d entries of this test match the row %q", finalizersPage, section, len(prefixes), row)
			continue
		}
		seen[section+prefixes[0]] = true
		for _, test := range ways[section][prefixes[0]] {
			if _, exists := functions[test]; !exists {
				t.Errorf("%s, %s, %q: there is no test %s", finalizersPage, section, prefixes[0], test)
			}
		}
	}
	for section, rows := range ways {
		for prefix := range rows {
			if !seen[section+prefix] {
				t.Errorf("%s has no row %q in %s", finalizersPage, prefix, section)
			}
		}
	}
}
