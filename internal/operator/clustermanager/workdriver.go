package clustermanager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// workDriverDir is where the work controllers see the configuration of the broker, and the files that it names.
const workDriverDir = "/var/run/secrets/work"

// workDriverConfig reads the configuration of the broker from the namespace of the operator; nil if there is none, or need be none.
func (c *Controller) workDriverConfig(ctx context.Context, cm *operatorv1.ClusterManager) (*corev1.Secret, error) {
	if driver := workOf(cm).WorkDriver; driver == "" || driver == operatorv1.WorkDriverTypeKube {
		return nil, nil
	}
	return c.OwnSecret(ctx, fleet.SecretWorkDriverConfig)
}

// work is the work controllers of a hub, and the broker that they may deliver works by.
type work struct{ planned }

// broker is the Secret with the configuration of the broker that the spec names, which delivers works to agents that do not get them from
// the API of the hub; nil if it names none. The error says why there is none yet.
func (w work) broker() (*corev1.Secret, error) {
	switch driver := workOf(w.ClusterManager).WorkDriver; {
	case driver == "" || driver == operatorv1.WorkDriverTypeKube:
		return nil, nil
	case !w.work.Enabled(featuregates.CloudEventsDrivers):
		return nil, fmt.Errorf("switch on the feature gate %s in spec.workConfiguration.featureGates", featuregates.CloudEventsDrivers)
	case w.workDriver == nil:
		return nil, fmt.Errorf("store the configuration of the broker in the Secret %s of the namespace of the operator, under the key %s",
			fleet.SecretWorkDriverConfig, fleet.KeyConfig)
	}
	if err := checkBroker(workOf(w.ClusterManager).WorkDriver, w.workDriver.Data[fleet.KeyConfig]); err != nil {
		return nil, fmt.Errorf("correct the key %s of the Secret %s: %w", fleet.KeyConfig, fleet.SecretWorkDriverConfig, err)
	}
	return w.workDriver, nil
}

// checkBroker says what is wrong with the configuration of a broker.
func checkBroker(driver operatorv1.WorkDriverType, content []byte) error {
	if driver == operatorv1.WorkDriverTypeGRPC {
		_, err := grpcconfig.Parse(content)
		return err
	}
	_, err := mqtt.Parse(content)
	return err
}

func (w work) component() workload.Component {
	broker, _ := w.broker() // an error is reported
	args := slices.Concat([]string{"/work", "manager"}, w.work.Flags())
	if broker != nil {
		args = append(args, "--work-driver="+string(workOf(w.ClusterManager).WorkDriver), "--work-driver-config="+workDriverDir+"/"+fleet.KeyConfig,
			"--cloudevents-client-id=work-controller-$(POD_NAME)")
	}
	component := w.controller(workController, w.Spec.WorkImagePullSpec, fleet.ServiceAccountWorkController, args)
	if broker != nil {
		const secret = fleet.SecretWorkDriverConfig
		component.Volumes = append(component.Volumes, workload.SecretVolume(secret, workDriverDir, secret, false))
		component.PodAnnotations = map[string]string{annotationConfigHash: hashOf(broker)}
	}
	return component
}

// hasTasks reports whether one of the controllers of works has something to do.
func (w work) hasTasks() bool {
	broker, _ := w.broker()
	return broker != nil || w.work.Enabled(featuregates.ManifestWorkReplicaSet) || w.work.Enabled(featuregates.CleanUpCompletedManifestWork)
}

// hashOf changes with the configuration of a broker, which the controllers read when they start.
func hashOf(config *corev1.Secret) string {
	content, _ := json.Marshal(config.Data) // sorted by key; bytes always have a form in JSON
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
