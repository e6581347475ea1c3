package clustermanager

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-02, CM-03: the mode in which a hub is installed is written down, decides where the hub is, and is not changed.
func TestModeStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		installed, changed func(*operatorv1.ClusterManager)
	}{
		"Default": {func(*operatorv1.ClusterManager) {}, hostedAt("hub.example.com")},
		"Hosted":  {hostedAt("hub.example.com"), func(cm *operatorv1.ClusterManager) { cm.Spec.DeployOption.Mode = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
			test.installed(cm)
			changedBefore := cm.DeepCopy()
			test.changed(changedBefore)
			if err := validate(changedBefore); err != nil {
				t.Errorf("the mode of a hub that is not installed is refused: %v", err)
			}
			c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(cm.DeepCopy()).Build()}}
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); err != nil {
				t.Fatal(err)
			}
			namespace := namespaceOf(cm)
			if err := c.recordMode(t.Context(), cm, modeOf(cm)); err != nil {
				t.Fatal(err)
			}
			if err := validate(cm); err != nil {
				t.Errorf("the mode that is installed is refused: %v", err)
			}
			err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)
			if err != nil || cm.Annotations[fleet.AnnotationInstalledMode] != name {
				t.Fatalf("annotations %v, %v", cm.Annotations, err)
			}
			test.changed(cm)
			err = validate(cm)
			if err == nil || !strings.Contains(err.Error(), "the hub is installed in the mode "+name) ||
				!strings.Contains(err.Error(), "set it to "+name+" again") {
				t.Errorf("changed: %v", err)
			}
			if got := namespaceOf(cm); got != namespace {
				t.Errorf("the hub that is removed would be that in namespace %s, but %s is installed", got, namespace)
			}
		})
	}
}

// The mode of what another operator has installed follows from where it runs.
func TestRunningMode(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	for namespace, want := range map[string]operatorv1.InstallMode{fleet.NamespaceHub: operatorv1.InstallModeDefault,
		"cluster-manager": operatorv1.InstallModeHosted, "another": ""} {
		running := []client.Object{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}}
		if got := runningMode(cm, running); got != want {
			t.Errorf("in namespace %s: %q", namespace, got)
		}
	}
	if got := runningMode(cm, nil); got != "" {
		t.Errorf("without Deployments: %q", got)
	}
}
