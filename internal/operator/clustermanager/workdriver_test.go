package clustermanager

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const brokerConfig = `
brokerHost: mqtt.example.com:8883
caFile: /var/run/secrets/work/ca.crt
topics:
  sourceEvents: sources/mwrsctrl/clusters/+/sourceevents
  agentEvents: sources/mwrsctrl/clusters/+/agentevents
`

// byMQTT has works brought to agents by a broker, with or without the other controllers of works.
func byMQTT(others bool) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		gates := []operatorv1.FeatureGate{{Feature: "CloudEventsDrivers", Mode: "Enable"}}
		if !others {
			gates = append(gates, operatorv1.FeatureGate{Feature: "ManifestWorkReplicaSet", Mode: "Disable"},
				operatorv1.FeatureGate{Feature: "CleanUpCompletedManifestWork", Mode: "Disable"})
		}
		cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{WorkDriver: operatorv1.WorkDriverTypeMQTT, FeatureGates: gates}
	}
}

func byGRPC(cm *operatorv1.ClusterManager) {
	byMQTT(true)(cm)
	cm.Spec.WorkConfiguration.WorkDriver = operatorv1.WorkDriverTypeGRPC
}

func brokerAt(config string) func(*inputs) {
	return func(in *inputs) {
		in.workDriver = &corev1.Secret{Data: map[string][]byte{"config.yaml": []byte(config), "ca.crt": []byte("ca")}}
		in.workDriver.Name = fleet.SecretWorkDriverConfig
	}
}

// CM-13: the work controllers have the configuration of the broker, and start again when it changes.
func TestWorkDriver(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{true, false} {
		p := planOf(byMQTT(others), brokerAt(brokerConfig))
		work := deployment(t, p, "work-controller")
		container := work.Spec.Template.Spec.Containers[0]
		if got := strings.Join(container.Args, " "); !strings.Contains(got, " --work-driver=mqtt --work-driver-config=/var/run/secrets/work/config.yaml "+
			"--cloudevents-client-id=work-controller-$(POD_NAME)") {
			t.Errorf("arguments %s", got)
		}
		if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_NAME" }) ||
			!slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/var/run/secrets/work" }) {
			t.Errorf("container %+v", container)
		}
		secret, ok := find[*corev1.Secret](p, fleet.SecretWorkDriverConfig)
		if !ok || secret.Namespace != fleet.NamespaceHub || string(secret.Data["ca.crt"]) != "ca" {
			t.Errorf("secret %+v", secret)
		}
		other := deployment(t, planOf(byMQTT(others), brokerAt(brokerConfig+"username: hub\n")), "work-controller")
		if work.Spec.Template.Annotations[annotationConfigHash] == other.Spec.Template.Annotations[annotationConfigHash] {
			t.Error("the pods are the same with another configuration")
		}
	}
}

// CM-13: a broker of gRPC has a configuration of another form.
func TestWorkDriverGRPC(t *testing.T) {
	t.Parallel()
	p := planOf(byGRPC, brokerAt("url: broker.example.com:8890\n"))
	if got := argsOf(t, p, "work-controller"); !strings.Contains(got, " --work-driver=grpc --work-driver-config=/var/run/secrets/work/config.yaml ") {
		t.Errorf("arguments %s", got)
	}
}

// CM-13: without all that it takes, works reach agents by the API alone, and the report says what to do.
func TestNoWorkDriver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit   func(*operatorv1.ClusterManager)
		inputs func(*inputs)
		says   string
	}{
		"no Secret": {byMQTT(true), nil, "store the configuration of the broker in the Secret work-driver-config of the namespace of the operator"},
		"no gate": {func(cm *operatorv1.ClusterManager) {
			cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{WorkDriver: operatorv1.WorkDriverTypeMQTT}
		}, brokerAt(brokerConfig), "switch on the feature gate CloudEventsDrivers"},
		"no port": {byMQTT(true), brokerAt(strings.Replace(brokerConfig, ":8883", "", 1)),
			`correct the key config.yaml of the Secret work-driver-config: brokerHost is "mqtt.example.com", want HOST:PORT`},
		"no key":                              {byMQTT(true), brokerAt(""), "correct the key config.yaml"},
		"the configuration of another driver": {byGRPC, brokerAt(brokerConfig), `correct the key config.yaml of the Secret work-driver-config: url: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plannedOf(test.edit, test.inputs)
			if got := argsOf(t, p.plan(), "work-controller"); strings.Contains(got, "--work-driver") {
				t.Errorf("arguments %s", got)
			}
			if got := strings.Join(unsupported(p), "; "); !strings.Contains(got, test.says) {
				t.Errorf("%q does not say %q", got, test.says)
			}
		})
	}
}
