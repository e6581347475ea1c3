package clustermanager

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-04: a hosted hub whose webhooks could not be reached is refused with the fields that are missing, before anything is applied.
func TestHostedWithoutAddresses(t *testing.T) {
	t.Parallel()
	const registration, work = "spec.deployOption.hosted.registrationWebhookConfiguration.address is empty",
		"spec.deployOption.hosted.workWebhookConfiguration.address is empty"
	for name, test := range map[string]struct {
		edit func(*operatorv1.ClusterManager)
		want []string
	}{
		"default": {edit: func(*operatorv1.ClusterManager) {}},
		"both":    {edit: hostedAt("hub.example.com")},
		"neither": {want: []string{registration, work}, edit: func(cm *operatorv1.ClusterManager) {
			cm.Spec.DeployOption.Mode = operatorv1.InstallModeHosted
		}},
		"name": {want: []string{`metadata.name is "open-cluster-management-hub"`}, edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			cm.Name = fleet.NamespaceHub
		}},
		"one": {want: []string{work}, edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			cm.Spec.DeployOption.Hosted.WorkWebhookConfiguration = operatorv1.HostedWebhookConfiguration{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
			test.edit(cm)
			err := validate(cm)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say: %s", err, want)
				}
			}
			if err == nil {
				return
			}
			// The controller has no client: it would panic if it sent a request.
			if due, refused := (&Controller{}).install(t.Context(), cm); refused != nil || due != 0 {
				t.Errorf("due %s, error %v", due, refused)
			}
			applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
			if applied == nil || applied.Status != metav1.ConditionFalse || applied.Message != err.Error() {
				t.Errorf("condition %v", applied)
			}
		})
	}
}

// CM-04, O4: an address that is none is refused with what would be right, and so is what would be refused as the name of a Service later.
func TestValidateAddress(t *testing.T) {
	t.Parallel()
	const neither = ": it must be an IP address, such as 192.0.2.1, or a host name in lower case, such as webhook.example.com"
	for address, want := range map[string]string{
		"192.0.2.1": "", "2001:db8::1": "", "hub.example.com": "", "webhook": "", "1.example.com": "", "a-1.b2": "",
		"999.0.2.1": neither, "192.0.2": neither, "192.0.2.01": neither, "12": neither, "2001:db8::1::2": neither, "[2001:db8::1]": neither,
		"Hub.example.com": neither, "hub.example.com:443": neither, "https://hub.example.com": neither, "hub_1.example.com": neither,
		"hub.example.com.": neither, strings.Repeat("a.", 127) + "a": neither,
	} {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
		hostedAt(address)(cm)
		err := validate(cm)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", address, err)
			}
			continue
		}
		for _, webhook := range []string{"registration", "work"} {
			text := "spec.deployOption.hosted." + webhook + `WebhookConfiguration.address is "` + address + `"` + want
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v does not say: %s", err, text)
			}
		}
	}
}

// CM-01: a name that something could not have that begins with it is refused, as is one whose namespace is not that of the hub alone.
func TestValidateName(t *testing.T) {
	t.Parallel()
	hosted := hostedAt("hub.example.com")
	const characters, label, letter, use = "at most 38 characters", "lower case letters, digits and hyphens only", "begin with a letter",
		"runs in the namespace of its name, which has another use"
	for _, test := range []struct {
		name  string
		edits []func(*operatorv1.ClusterManager)
		want  string
	}{
		{name: "cluster-manager"}, {name: "hub"}, {name: "multicluster-hub"}, {name: "2nd-hub"}, {name: "a"},
		{name: strings.Repeat("a", maxName)}, {name: strings.Repeat("a", maxName+1), want: characters},
		{name: strings.Repeat("a.", 20), want: characters},
		{name: "cluster.manager", want: label}, {name: "hub.example.com", want: label},
		{name: "hub-2", edits: []func(*operatorv1.ClusterManager){withGRPC()}},
		{name: "2nd-hub", edits: []func(*operatorv1.ClusterManager){withGRPC()}, want: letter},
		{name: "2nd-hub", edits: []func(*operatorv1.ClusterManager){explaining}, want: letter},
		{name: "cluster-manager", edits: []func(*operatorv1.ClusterManager){hosted}},
		{name: "2nd-hub", edits: []func(*operatorv1.ClusterManager){hosted}},
		{name: "default"}, {name: fleet.NamespaceOperators},
		{name: "default", edits: []func(*operatorv1.ClusterManager){hosted}, want: use},
		{name: "kube-system", edits: []func(*operatorv1.ClusterManager){hosted}, want: use},
		{name: fleet.NamespaceOperators, edits: []func(*operatorv1.ClusterManager){hosted}, want: use},
		{name: fleet.NamespaceHub, edits: []func(*operatorv1.ClusterManager){hosted}, want: use},
		{name: fleet.NamespaceAgent, edits: []func(*operatorv1.ClusterManager){hosted}, want: use},
	} {
		cm := &operatorv1.ClusterManager{}
		named(test.name, test.edits...)(cm)
		err := checkName(cm)
		if (err == nil) != (test.want == "") {
			t.Errorf("%s: %v", test.name, err)
		} else if err != nil && (!strings.Contains(err.Error(), `metadata.name is "`+test.name+`": `) ||
			!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "create the ClusterManager under another name")) {
			t.Errorf("%v does not say: %s", err, test.want)
		}
	}
}

// CM-01: a hub that is there already is kept up whatever its name: an earlier version has installed it, and its ClusterManager cannot be
// created under another name without the loss of all that is stored. A new one is refused for good, as its finalizer would say that it is
// there. No version has installed one in the namespace of the hub in the operator's cluster.
func TestNameOfInstalled(t *testing.T) {
	t.Parallel()
	finalizer := func(cm *operatorv1.ClusterManager) { cm.Finalizers = []string{fleet.FinalizerClusterManagerCleanup} }
	recorded := func(mode operatorv1.InstallMode) func(*operatorv1.ClusterManager) {
		return func(cm *operatorv1.ClusterManager) {
			cm.Annotations = map[string]string{fleet.AnnotationInstalledMode: string(mode)}
		}
	}
	hosted, long := hostedAt("hub.example.com"), strings.Repeat("a", maxName+1)
	for name, test := range map[string]struct {
		cm      func(*operatorv1.ClusterManager)
		refused bool
	}{
		"new, long":                {named(long), true},
		"with finalizer, long":     {named(long, finalizer), false},
		"with its mode, long":      {named(long, recorded(operatorv1.InstallModeDefault)), false},
		"new, reserved":            {named(fleet.NamespaceAgent, hosted), true},
		"with finalizer, reserved": {named(fleet.NamespaceAgent, hosted, finalizer), false},
		"with its mode, reserved":  {named(fleet.NamespaceAgent, hosted, recorded(operatorv1.InstallModeHosted)), false},
		"in the other namespace":   {named(fleet.NamespaceHub, hosted, finalizer), true},
	} {
		cm := &operatorv1.ClusterManager{}
		test.cm(cm)
		if err := errors.Join(checkName(cm), validate(cm)); (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if !test.refused || installed(cm) {
			continue
		}
		c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(cm.DeepCopy()).Build()}}
		due, err := c.installOnce(t.Context(), cm)
		applied := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
		if due != 0 || err != nil || installed(cm) || applied == nil || !strings.Contains(applied.Message, "under another name") {
			t.Errorf("%s: due in %s, %v: %v, finalizers %v", name, due, err, applied, cm.Finalizers)
		}
	}
}

// CM-01: the longest name is one with which all Deployments can have their names, labels and containers, and no longer one is.
func TestLongestName(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{maxName: true, maxName + 1: false} {
		fits := true
		for _, d := range planOf(named(strings.Repeat("a", length), withGRPC(), explaining), nil).deployments {
			fits = fits && len(d.Labels["app"]) <= validation.DNS1123LabelMaxLength
			for _, container := range d.Spec.Template.Spec.Containers {
				fits = fits && len(validation.IsDNS1123Label(container.Name)) == 0
			}
		}
		if fits != want {
			t.Errorf("with %d characters: %t", length, fits)
		}
	}
}
