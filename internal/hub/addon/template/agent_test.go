package template

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

const (
	templateV1 = `
apiVersion: addon.open-cluster-management.io/v1beta1
kind: AddOnTemplate
metadata: {name: hello-v1}
spec:
  addonName: hello
  agentSpec:
    workload:
      manifests:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: greeting, namespace: hello}, data: {who: "{{CLUSTER_NAME}} {{WHO}}{{INSTALL_NAMESPACE}}"}}
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: agent, namespace: hello}
        spec: {template: {spec: {containers: [{name: agent, image: "quay.io/acme/agent:v1"}]}}}
  registration:
  - type: KubeClient
    kubeClient:
      hubPermissions:
      - {type: CurrentCluster, currentCluster: {clusterRoleName: reader}}
      - {type: SingleNamespace, singleNamespace: {namespace: shared, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}}}
      - {type: SingleNamespace, singleNamespace: {namespace: shared, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}}}
  - type: CustomSigner
    customSigner:
      signerName: example.com/hello
      subject: {user: hello-user}
      signingCA: {name: hello-ca}
`
	deployConfig = `
apiVersion: addon.open-cluster-management.io/v1beta1
kind: AddOnDeploymentConfig
metadata: {name: deploy, namespace: default}
spec: {agentInstallNamespace: hello-system, customizedVariables: [{name: WHO, value: world}]}
`
)

// hub has configurations, given as YAML, and other objects.
func hub(configurations []string, others ...client.Object) client.Client {
	for _, text := range configurations {
		others = append(others, addontest.Object(text))
	}
	return addontest.Client(others...)
}

func newAgent(t *testing.T, configurations ...string) addon.Agent {
	t.Helper()
	return newRecordedAgent(t, &events.FakeRecorder{}, configurations...)
}

func newRecordedAgent(t *testing.T, recorder events.EventRecorder, configurations ...string) addon.Agent {
	t.Helper()
	entry := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
	entry.Spec.DefaultConfigs = []addonv1beta1.AddOnConfig{{ConfigGroupResource: templateType()}}
	c := hub(configurations, entry)
	agent, err := NewCatalogue(c, c, recorder).Agent(t.Context(), addontest.Installation("cluster1", "hello").AddOn)
	if err != nil || agent == nil {
		t.Fatal(agent, err)
	}
	return agent
}

func templateType() addonv1beta1.ConfigGroupResource {
	return addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addontemplates"}
}

// installed is an add-on that refers to the template, or whatever configuration, and says that all are known.
func installed(configurations ...string) addon.Installation {
	installation := addontest.Installation("cluster1", "hello")
	for _, text := range configurations {
		installation.AddOn.Status.ConfigReferences = append(installation.AddOn.Status.ConfigReferences,
			addontest.Reference(addontest.Object(text)))
	}
	installation.AddOn.Status.Conditions = []metav1.Condition{{Type: "Configured", Status: metav1.ConditionTrue}}
	return installation
}

func leaving(installation addon.Installation) addon.Installation {
	now := metav1.NewTime(time.Unix(1, 0))
	installation.AddOn.DeletionTimestamp = &now
	return installation
}

func text(t *testing.T, workload *addon.Workload, path ...string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(workload.Objects[0].(*unstructured.Unstructured).Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// AM-30 to AM-33, AM-36 to AM-38
func TestManifests(t *testing.T) {
	t.Parallel()
	agent := newAgent(t, templateV1, deployConfig)
	options := agent.Options()
	if options.Name != "hello" || options.Health.Mode != addon.HealthWorkloads || options.HostingCluster != nil || len(options.Configs) != 2 {
		t.Errorf("%+v", options)
	}
	for _, test := range []struct {
		installation         addon.Installation
		namespace, who, name string
	}{
		{name: "template", installation: installed(templateV1), namespace: "hello", who: "cluster1 hello"},
		{name: "configured", installation: installed(templateV1, deployConfig), namespace: "hello-system", who: "cluster1 worldhello-system"},
	} {
		namespace, err := options.InstallNamespace(t.Context(), test.installation)
		if err != nil || namespace != test.namespace {
			t.Errorf("%s: namespace %q, error %v, want %q", test.name, namespace, err, test.namespace)
		}
		test.installation.AddOn.Status.Namespace = namespace
		workload, err := agent.Manifests(t.Context(), test.installation)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := text(t, workload, "data", "who"); got != test.who || workload.Objects[0].GetNamespace() != test.namespace {
			t.Errorf("%s: %q in %q, want %q", test.name, got, workload.Objects[0].GetNamespace(), test.who)
		}
	}
}

// AM-37: the annotation of the cluster counts, and nothing else of it brings a new rendering about.
func TestImageRegistriesOfTheCluster(t *testing.T) {
	t.Parallel()
	agent := newAgent(t, templateV1)
	installation := installed(templateV1)
	before := installation.Cluster.DeepCopy()
	installation.Cluster.Annotations = map[string]string{
		"open-cluster-management.io/image-registries": `{"registries":[{"source":"quay.io","mirror":"m.example.com"}]}`}
	workload, err := agent.Manifests(t.Context(), installation)
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(workload.Objects[1].(*unstructured.Unstructured).Object, "spec", "template", "spec",
		"containers")
	if got := containers[0].(map[string]any)["image"]; got != "m.example.com/acme/agent:v1" {
		t.Errorf("pulled from %v", got)
	}
	labelled := before.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	redeploys := agent.Options().RedeployOn
	if !redeploys(before, installation.Cluster) || redeploys(before, labelled) {
		t.Error("redeployed on a label, or not on the annotation")
	}
	installation.Cluster.Annotations["open-cluster-management.io/image-registries"] = "quay.io"
	if _, err := agent.Manifests(t.Context(), installation); err == nil || !strings.Contains(err.Error(), "image-registries") {
		t.Errorf("no JSON: %v", err)
	}
}

// AM-38, AM-07
func TestManifestsFail(t *testing.T) {
	t.Parallel()
	agent := newAgent(t, templateV1, deployConfig)
	other := installed(strings.ReplaceAll(templateV1, "agent:v1", "agent:v2"))
	unknown := addontest.Installation("cluster1", "hello")
	missing := installed(strings.ReplaceAll(templateV1, "hello-v1", "hello-v9"))
	for _, test := range []struct {
		name         string
		installation addon.Installation
		want         error
		text         string
	}{
		{name: "not known yet", installation: unknown, want: addon.ErrNotYet},
		{name: "another state", installation: other, want: addon.ErrNotYet},
		{name: "another state of the deployment", installation: installed(templateV1, strings.ReplaceAll(deployConfig, "world", "moon")),
			want: addon.ErrNotYet},
		{name: "missing", installation: missing, want: config.ErrMissing, text: "AddOnTemplate /hello-v9 does not exist: create it"},
		{name: "none named", installation: installed(), want: config.ErrMissing,
			text: "an AddOnTemplate for the add-on hello does not exist: name one as default"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := agent.Manifests(t.Context(), test.installation)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want %s", err, test.text)
			}
		})
	}
}

// An add-on that leaves takes what there is, and does not wait for what is gone.
func TestLeaving(t *testing.T) {
	t.Parallel()
	agent := newAgent(t, templateV1, deployConfig)
	changed := leaving(installed(strings.ReplaceAll(templateV1, "agent:v1", "agent:v2")))
	if workload, err := agent.Manifests(t.Context(), changed); err != nil || len(workload.Objects) != 2 {
		t.Errorf("in another state: %v, %v", workload, err)
	}
	for name, installation := range map[string]addon.Installation{
		"template missing":     leaving(installed(strings.ReplaceAll(templateV1, "hello-v1", "hello-v9"))),
		"deployment missing":   leaving(installed(templateV1, strings.ReplaceAll(deployConfig, "name: deploy", "name: gone"))),
		"never had a template": leaving(addontest.Installation("cluster1", "hello")),
	} {
		installation.AddOn.Status.Namespace = "as-it-was"
		if workload, err := agent.Manifests(t.Context(), installation); err != nil || len(workload.Objects) != 0 {
			t.Errorf("%s: %v, %v", name, workload, err)
		}
		if namespace, err := agent.Options().InstallNamespace(t.Context(), installation); err != nil || namespace != "as-it-was" {
			t.Errorf("%s: namespace %q, %v", name, namespace, err)
		}
	}
}

// AM-34, AM-35, AM-38
func TestRegistrations(t *testing.T) {
	t.Parallel()
	registration := newAgent(t, templateV1).Options().Registration
	installation := installed(templateV1)
	got, err := registration.Configs(t.Context(), installation)
	if err != nil {
		t.Fatal(err)
	}
	want := []addonv1beta1.RegistrationConfig{
		addon.KubeClient(installation, "hello-agent"),
		{Type: "customSigner", CustomSigner: &addonv1beta1.CustomSignerConfig{SignerName: "example.com/hello", Subject: addonv1beta1.Subject{
			User: "hello-user", Groups: []string{"system:open-cluster-management:cluster:cluster1:addon:hello",
				"system:open-cluster-management:addon:hello"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// Before the rollout has reached the cluster, they are what they were, and who acts on the hub is not the agent's to say.
	behind := installed(strings.ReplaceAll(templateV1, "agent:v1", "agent:v2"))
	if _, err := registration.Configs(t.Context(), behind); !errors.Is(err, addon.ErrNotYet) {
		t.Errorf("nothing is known, and the error is %v", err)
	}
	forged := *want[0].DeepCopy()
	forged.KubeClient.Subject.Groups = []string{"system:masters"}
	behind.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{forged, want[1]}
	if got, err = registration.Configs(t.Context(), behind); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// AM-34
func TestPermissions(t *testing.T) {
	t.Parallel()
	registration := newAgent(t, templateV1).Options().Registration
	installation := installed(templateV1)
	installation.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{addon.KubeClient(installation, "hello")}
	permissions, err := registration.Permissions(t.Context(), installation)
	if err != nil {
		t.Fatal(err)
	}
	type binding struct{ Namespace, Kind, Role, Subject string }
	var got []binding
	names := map[string]bool{}
	for _, permission := range permissions {
		b := permission.(*rbacv1.RoleBinding)
		got = append(got, binding{b.Namespace, b.RoleRef.Kind, b.RoleRef.Name, b.Subjects[0].Kind + " " + b.Subjects[0].Name})
		names[b.Namespace+"/"+b.Name] = true
	}
	const group = "Group system:open-cluster-management:cluster:cluster1:addon:hello"
	want := []binding{{"cluster1", "ClusterRole", "reader", group}, {"shared", "Role", "writer", group},
		{"shared", "ClusterRole", "reader", group}}
	if diff := cmp.Diff(want, got); diff != "" || len(names) != 3 {
		t.Errorf("%s, names %v", diff, names)
	}
	// Another cluster's binding in the shared namespace is another one.
	elsewhere := installed(templateV1)
	elsewhere.Cluster = &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster2"}}
	elsewhere.AddOn.Namespace = "cluster2"
	elsewhere.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{addon.KubeClient(elsewhere, "hello")}
	if permissions, err = registration.Permissions(t.Context(), elsewhere); err != nil ||
		names[permissions[1].GetNamespace()+"/"+permissions[1].GetName()] {
		t.Errorf("%v, %v", permissions, err)
	}
	// Who registers is not known: the token has no service account yet, or the status has not been written.
	if _, err := registration.Permissions(t.Context(), installed(templateV1)); !errors.Is(err, addon.ErrSubjectNotReady) {
		t.Errorf("no registration: %v", err)
	}
	if _, err := registration.Permissions(t.Context(), leaving(installed(strings.ReplaceAll(templateV1, "hello-v1", "gone")))); !errors.Is(err,
		addon.ErrNotYet) {
		t.Errorf("the template is gone: %v", err)
	}
	incomplete := strings.ReplaceAll(templateV1,
		"type: SingleNamespace, singleNamespace: {namespace: shared, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}}",
		"type: SingleNamespace")
	installation.AddOn.Status.ConfigReferences = []addonv1beta1.ConfigReference{addontest.Reference(addontest.Object(incomplete))}
	if _, err := newAgent(t, incomplete).Options().Registration.Permissions(t.Context(), installation); err == nil ||
		!strings.Contains(err.Error(), "spec.registration[0].kubeClient.hubPermissions[1]: type \"SingleNamespace\" needs") {
		t.Errorf("without its block: %v", err)
	}
}

// AM-30: a template for another add-on is used, and warned of, once.
func TestTemplateOfAnother(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(10)
	foreign := strings.ReplaceAll(templateV1, "addonName: hello", "addonName: other")
	agent := newRecordedAgent(t, recorder, foreign, deployConfig)
	for range 2 {
		rendered, err := agent.Manifests(t.Context(), installed(foreign, deployConfig))
		if err != nil || len(rendered.Objects) == 0 {
			t.Fatalf("%v, %v", rendered, err)
		}
	}
	if registrations, err := agent.Options().Registration.Configs(t.Context(), installed(foreign, deployConfig)); err != nil ||
		len(registrations) == 0 {
		t.Errorf("%v, %v", registrations, err)
	}
	const want = "Warning AddOnTemplateOfAnotherAddOn The AddOnTemplate is used although it is for the add-on other: "
	if said := <-recorder.Events; !strings.HasPrefix(said, want) || len(recorder.Events) > 0 {
		t.Errorf("%q, and %d more", said, len(recorder.Events))
	}
}

// AM-31: a variable without value is warned of, once, until it has one; and so is a hosting cluster, which means nothing to add-ons of
// templates.
func TestTells(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(10)
	agent := newRecordedAgent(t, recorder, templateV1, deployConfig)
	bare, configured := installed(templateV1), installed(templateV1, deployConfig)
	hosted := installed(templateV1, deployConfig)
	hosted.AddOn.Annotations = map[string]string{"addon.open-cluster-management.io/hosting-cluster-name": "host"}
	gone := installed(templateV1)
	gone.AddOn.DeletionTimestamp = new(metav1.Now())
	again := installed(templateV1)
	again.AddOn.UID = "again"
	const unset, notHosted = "Warning AddOnTemplateVariablesUnset The AddOnTemplate has variables without a value, which become empty: WHO.",
		"Warning AddOnNotHosted Add-ons of AddOnTemplates run on their own cluster: the annotation"
	for i, step := range []struct {
		installation addon.Installation
		want         string
	}{{bare, unset}, {bare, ""}, {configured, ""}, {bare, unset}, {gone, ""}, {bare, unset}, {again, unset}, {again, ""}, {hosted, notHosted},
		{hosted, ""}} {
		if _, err := agent.Manifests(t.Context(), step.installation); err != nil {
			t.Fatal(err)
		}
		said := ""
		select {
		case said = <-recorder.Events:
		default:
		}
		if said != step.want && (step.want == "" || !strings.HasPrefix(said, step.want)) || len(recorder.Events) > 0 {
			t.Errorf("step %d: %q, want %q", i, said, step.want)
		}
	}
}
