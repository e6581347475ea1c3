package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

const (
	one = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnDeploymentConfig, metadata: {name: one, namespace: default},
		spec: {agentInstallNamespace: hello, customizedVariables: []}}`
	two = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnDeploymentConfig, metadata: {name: two, namespace: default},
		spec: {agentInstallNamespace: ""}}`
)

// hub has configurations, given as YAML.
func hub(configurations ...string) client.Client {
	var objects []client.Object
	for _, text := range configurations {
		objects = append(objects, addontest.Object(text))
	}
	return addontest.Client(objects...)
}

func desired(text string) addonv1beta1.ConfigReference {
	return addontest.Reference(addontest.Object(text))
}

// installed is the add-on hello on cluster1.
func installed(references ...addonv1beta1.ConfigReference) addon.Installation {
	installation := addontest.Installation("cluster1", "hello")
	installation.AddOn.Status.ConfigReferences = references
	return installation
}

// AM-07, AF-22: an add-on has the configuration that the hub wants on the cluster.
func TestDeploymentConfig(t *testing.T) {
	t.Parallel()
	c := hub(one, two)
	first, second := desired(one), desired(two)
	got, err := config.DeploymentConfig(t.Context(), c, installed(first, second))
	if err != nil || got == nil || got.Name != "two" {
		t.Errorf("%v, %v; of several, the last counts", got, err)
	}
	if got, err := config.DeploymentConfig(t.Context(), c, installed()); got != nil || err != nil {
		t.Errorf("%v, %v without any", got, err)
	}
	undecided, announced, absent := second, second, desired(strings.ReplaceAll(one, "name: one", "name: absent"))
	undecided.DesiredConfig = nil
	announced.DesiredConfig = &addonv1beta1.ConfigSpecHash{ConfigReferent: second.DesiredConfig.ConfigReferent}
	absent.DesiredConfig.SpecHash = ""
	for _, pending := range []addonv1beta1.ConfigReference{undecided, announced, absent} {
		installation := installed(first, pending)
		if got, err := config.DeploymentConfig(t.Context(), c, installation); got != nil || !errors.Is(err, addon.ErrNotYet) {
			t.Errorf("%v, %v before the rollout has reached the cluster for the first time", got, err)
		}
		err := config.ReadAll(t.Context(), c, installation, func(*addonv1beta1.AddOnDeploymentConfig) error { t.Error("used"); return nil })
		if !errors.Is(err, addon.ErrNotYet) {
			t.Error(err)
		}
	}
	for want, installation := range map[string]addon.Installation{
		"hello": installed(second, first), "": installed(first, second),
	} {
		if got, err := config.InstallNamespace(c)(t.Context(), installation); got != want || err != nil {
			t.Errorf("namespace %q, error %v, want %q", got, err, want)
		}
	}
}

// AM-07: the rollout has not reached the cluster, or has and the cache is behind.
func TestAnotherState(t *testing.T) {
	t.Parallel()
	c := hub(one)
	changed := desired(strings.ReplaceAll(one, "agentInstallNamespace: hello", "agentInstallNamespace: world"))
	_, err := config.DeploymentConfig(t.Context(), c, installed(changed))
	if !errors.Is(err, addon.ErrNotYet) || !strings.Contains(err.Error(), "AddOnDeploymentConfig default/one: ") {
		t.Errorf("in another state: %v", err)
	}
	present := &addonv1beta1.AddOnDeploymentConfig{}
	if found, err := config.ReadPresent(t.Context(), c, installed(changed), present); !found || err != nil ||
		present.Spec.AgentInstallNamespace != "hello" {
		t.Errorf("as it is now: %v, %t, %v", present.Spec, found, err)
	}
	// The hash is that of what is stored, not of what Go makes of it: an empty list is not the absence of one.
	without := desired(strings.ReplaceAll(one, ", customizedVariables: []", ""))
	if _, err := config.DeploymentConfig(t.Context(), c, installed(without)); !errors.Is(err, addon.ErrNotYet) {
		t.Errorf("without the empty list: %v", err)
	}
}

// thing is a configuration in a version that has its fields elsewhere than another.
type thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Size int `json:"size"`
}

func (o *thing) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// newThing is the version that the hub prefers.
type newThing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Size int `json:"size"`
	} `json:"spec"`
}

func (o *newThing) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// AM-07: the hub hashes the preferred version, and the add-on reads another.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	old, preferred := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	scheme := addontest.Scheme()
	scheme.AddKnownTypeWithName(old.WithKind("Thing"), &thing{})
	scheme.AddKnownTypeWithName(preferred.WithKind("Thing"), &newThing{})
	if err := scheme.SetVersionPriority(preferred, old); err != nil {
		t.Fatal(err)
	}
	const (
		asOld       = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: one, uid: u, generation: 2}, size: 3}`
		asPreferred = `{apiVersion: example.com/v2, kind: Thing, metadata: {name: one, uid: u, generation: 2}, spec: {size: 3}}`
	)
	for name, test := range map[string]struct {
		served  []string
		desired string
		want    error
	}{
		"hashed as preferred":  {[]string{asOld, asPreferred}, asPreferred, nil},
		"hashed as it is read": {[]string{asOld, asPreferred}, asOld, nil},
		"another state": {
			[]string{asOld, asPreferred}, strings.ReplaceAll(asPreferred, "size: 3", "size: 4"), addon.ErrNotYet,
		},
		"read before it changed": {
			[]string{strings.ReplaceAll(asOld, "generation: 2", "generation: 1"), asPreferred}, asPreferred, addon.ErrNotYet,
		},
		"read before it was created again": {
			[]string{strings.ReplaceAll(asOld, "uid: u", "uid: v"), asPreferred}, asPreferred, addon.ErrNotYet,
		},
		"not seen in the preferred version": {[]string{asOld}, asPreferred, addon.ErrNotYet},
	} {
		var objects []client.Object
		for _, text := range test.served {
			objects = append(objects, addontest.Object(text))
		}
		got := &thing{}
		found, err := config.Read(t.Context(), addontest.ClientOf(scheme, objects...), installed(desired(test.desired)), got)
		if !found || !errors.Is(err, test.want) || err == nil && got.Size != 3 {
			t.Errorf("%s: %+v, %t, %v, want %v", name, got, found, err, test.want)
		}
	}
}

// AF-15: the hub does not say any more what an add-on is to have that leaves, and its hooks need what it has.
func TestLeaving(t *testing.T) {
	t.Parallel()
	c := hub(one)
	installation := installed(desired(strings.ReplaceAll(one, "agentInstallNamespace: hello", "agentInstallNamespace: world")))
	installation.AddOn.DeletionTimestamp = new(metav1.Now())
	if got, err := config.DeploymentConfig(t.Context(), c, installation); err != nil || got == nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := config.InstallNamespace(c)(t.Context(), installation); got != "hello" || err != nil {
		t.Errorf("namespace %q, %v", got, err)
	}
	found := 0
	if err := config.ReadAll(t.Context(), c, installation,
		func(*addonv1beta1.AddOnDeploymentConfig) error { found++; return nil }); found != 1 || err != nil {
		t.Errorf("%d, %v", found, err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	_, err := config.InstallNamespace(hub())(t.Context(), installed(desired(one)))
	if !errors.Is(err, config.ErrMissing) || !strings.Contains(err.Error(), "AddOnDeploymentConfig default/one does not exist: create it") {
		t.Error(err)
	}
	if _, err := config.Read(t.Context(), hub(), installed(), &apiextensionsv1.CustomResourceDefinition{}); err == nil ||
		!strings.Contains(err.Error(), "add it to the scheme") {
		t.Errorf("a type that the client does not know: %v", err)
	}
}

func TestReadAll(t *testing.T) {
	t.Parallel()
	c := hub(one, two)
	installation := installed(desired(two), desired(one))
	var names []string
	err := config.ReadAll(t.Context(), c, installation, func(config *addonv1beta1.AddOnDeploymentConfig) error {
		names = append(names, config.Name)
		return nil
	})
	if got := fmt.Sprint(names); err != nil || got != "[two one]" {
		t.Errorf("%s, %v", got, err)
	}
	enough := errors.New("enough")
	if err := config.ReadAll(t.Context(), c, installation, func(*addonv1beta1.AddOnDeploymentConfig) error { return enough }); !errors.Is(err,
		enough) {
		t.Error(err)
	}
}

// hello is an add-on whose namespace its AddOnDeploymentConfig chooses.
type hello struct{ hub client.Client }

func (h hello) Options() addon.Options {
	return addon.Options{Name: "hello", InstallNamespace: config.InstallNamespace(h.hub)}
}

func (h hello) Manifests(ctx context.Context, installation addon.Installation) (*addon.Workload, error) {
	deployment, err := config.DeploymentConfig(ctx, h.hub, installation)
	if err != nil {
		return nil, err // addon.ErrNotYet included: what is on the cluster stays
	}
	if deployment == nil {
		return nil, errors.New("the add-on needs an AddOnDeploymentConfig")
	}
	fmt.Println(deployment.Spec.NodePlacement.NodeSelector)
	return &addon.Workload{}, nil
}

func ExampleDeploymentConfig() {
	hub, installation := exampleHub()
	agent := hello{hub: hub}
	namespace, err := agent.Options().InstallNamespace(context.Background(), installation)
	fmt.Println(namespace, err)
	_, err = agent.Manifests(context.Background(), installation)
	fmt.Println(err)
	// Output:
	// hello-system <nil>
	// map[host:ssd]
	// <nil>
}

// exampleHub has an AddOnDeploymentConfig, and hello installed on a cluster with it.
func exampleHub() (client.Client, addon.Installation) {
	const text = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnDeploymentConfig, metadata: {name: hello, namespace: default},
		spec: {agentInstallNamespace: hello-system, nodePlacement: {nodeSelector: {host: ssd}}}}`
	config := addontest.Object(text)
	return addontest.Client(config), addontest.Installation("cluster1", "hello", config)
}
