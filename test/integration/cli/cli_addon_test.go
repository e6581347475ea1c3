package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-27 CA-36 CA-37 CA-38: what the commands for add-ons write is what the hub serves in its own version, and writing it again
// changes nothing.
func TestCLIAddOn(t *testing.T) {
	t.Parallel()
	const name = "cli-addon"
	h := framework.Hub.Client(t)
	clusters := []client.Object{framework.AcceptedCluster(name + "-a"), framework.AcceptedCluster(name + "-b")}
	framework.Create(t, h, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	framework.Create(t, h, clusters...)
	for _, c := range clusters {
		framework.AwaitHubAccepted(t, h, c.GetName(), metav1.ConditionTrue, "HubClusterAdminAccepted")
	}
	making := []string{"addon", "create", name, "-f", "-", "--hub-registration"}
	framework.Hub.Capstan(t, framework.ConfigMap(name, "agent", "1"), making...).Succeeds(t,
		"AddonTemplate cli-addon-0.0.1 is created\nClusterManagementAddon cli-addon is created\n")
	framework.Hub.Capstan(t, framework.ConfigMap(name, "agent", "1"), making...).Succeeds(t, "ClusterManagementAddon cli-addon is already created\n")
	framework.Hub.Capstan(t, framework.ConfigMap(name, "agent", "2"), append(making, "--version", "0.0.2", "--overwrite")...).Succeeds(t,
		"ClusterManagementAddon cli-addon is updated\n")
	addOn := &addonv1beta1.ClusterManagementAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: name}, addOn); err != nil {
		t.Fatal(err)
	}
	if len(addOn.Spec.DefaultConfigs) != 2 || addOn.Spec.DefaultConfigs[0].Resource != "addontemplates" ||
		addOn.Spec.DefaultConfigs[0].Name != name+"-0.0.2" ||
		addOn.Spec.DefaultConfigs[1].Resource != "addondeploymentconfigs" || addOn.Spec.DefaultConfigs[1].Name != "__reserved_no_default__" {
		t.Errorf("default configurations %+v", addOn.Spec.DefaultConfigs)
	}

	const config = `{"apiVersion":"addon.open-cluster-management.io/v1alpha1","kind":"AddOnDeploymentConfig","metadata":{"namespace":"cli-addon","name":"config"},"spec":{"customizedVariables":[{"name":"A","value":"b"}]}}`
	const other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"cli-addon","name":"config"}}`
	enable := []string{"addon", "enable", "--names", name, "--clusters", name + "-a," + name + "-b"}
	framework.Hub.Capstan(t, other, append(enable, "--config-file", "-")...).Ends(t, 1, "takes no configmaps")
	enable = append(enable, "-n", "somewhere", "--labels", "a=b", "--config-file", "-")
	for range 2 {
		framework.Hub.Capstan(t, config, enable...).Succeeds(t, "Deploying cli-addon add-on to namespaces somewhere of managed cluster: cli-addon-a.")
	}
	installed := &addonv1beta1.ManagedClusterAddOn{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: name + "-b", Name: name}, installed); err != nil {
		t.Fatal(err)
	}
	if installed.Annotations["addon.open-cluster-management.io/v1alpha1-install-namespace"] != "somewhere" || installed.Labels["a"] != "b" ||
		len(installed.Spec.Configs) != 1 || installed.Spec.Configs[0].Name != "config" || installed.Generation != 1 {
		t.Errorf("%+v", installed)
	}
	framework.Hub.Capstan(t, "", "get", "addon", name, "-o", "table").Succeeds(t, "cli-addon   2\n")
	framework.Hub.Capstan(t, "", "get", "addon", name, "-c", name+"-a").Succeeds(t, "└── cli-addon\n    └── cli-addon-a\n")
	framework.Hub.Capstan(t, "", "addon", "disable", "--names", name, "--clusters", name+"-a").Succeeds(t,
		"Undeploying cli-addon add-on in managed cluster: cli-addon-a.\n")
	framework.AwaitGone(t, h, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name + "-a", Name: name}})
	framework.Hub.Capstan(t, "", "install", "hub-addon", "--names", "argocd", "--create-namespace").Ends(t, 1, "runs no pods")
}

// CA-36 CA-37 CA-38 AM-31: an add-on that was made of manifests on the command line is on its cluster a moment after it is enabled,
// gets a new version and a configuration, and is off again when it is disabled.
func TestCLIAddOnLife(t *testing.T) {
	t.Parallel()
	const name = "cli-addon-life"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	making := []string{"addon", "create", name, "-f", "-"}
	framework.Hub.Capstan(t, framework.ConfigMap(ns, "agent", "1"), making...).Succeeds(t)
	on := []string{"--names", name, "--clusters", name}
	framework.Hub.Capstan(t, "", slices.Concat([]string{"addon", "enable", "-n", ns}, on)...).Succeeds(t)
	framework.AwaitConfigMap(t, m, ns, "agent", "1")
	framework.Hub.Capstan(t, framework.ConfigMap(ns, "agent", "2{{VALUE}}"), append(making, "--version", "0.0.2", "--overwrite")...).Succeeds(t)
	framework.AwaitConfigMap(t, m, ns, "agent", "2")
	config := fmt.Sprintf(`{"apiVersion":"addon.open-cluster-management.io/v1alpha1","kind":"AddOnDeploymentConfig","metadata":{"namespace":%q,"name":"config"},`+
		`"spec":{"agentInstallNamespace":%q,"customizedVariables":[{"name":"VALUE","value":"3"}]}}`, name, ns)
	framework.Hub.Capstan(t, config, slices.Concat([]string{"addon", "enable", "-n", ns, "--config-file", "-"}, on)...).Succeeds(t)
	framework.AwaitConfigMap(t, m, ns, "agent", "23")
	env.Eventually(t, func(context.Context) error {
		shown := framework.Hub.Capstan(t, "", "get", "addon", name)
		for _, want := range []string{"ManifestApplied: True", "RegistrationApplied: True", "ConfigMap " + ns + "/agent: applied"} {
			if !strings.Contains(shown.Out, want) {
				return fmt.Errorf("%q is missing in\n%s%s", want, shown.Out, shown.ErrOut)
			}
		}
		return nil
	})
	framework.Hub.Capstan(t, "", slices.Concat([]string{"addon", "disable"}, on)...).Succeeds(t, "Undeploying")
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"}})
	framework.AwaitGone(t, h, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}})
}
