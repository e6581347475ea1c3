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
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// workDriverDir is where the work controllers see the configuration of the broker, and the files that it names.
const workDriverDir = "/var/run/secrets/work"

// broker brings works to agents that do not get them from the API of the hub.
type broker struct {
	// config is the Secret with its configuration.
	config *corev1.Secret
	port   int32
}

// workDriverConfig reads the configuration of the broker from the namespace of the operator; nil if there is none, or need be none.
func (c *Controller) workDriverConfig(ctx context.Context, cm *operatorv1.ClusterManager) (*corev1.Secret, error) {
	if driver := workOf(cm).WorkDriver; driver == "" || driver == operatorv1.WorkDriverTypeKube {
		return nil, nil
	}
	return c.OwnSecret(ctx, fleet.SecretWorkDriverConfig)
}

// broker is the one that the spec asks for; nil if it asks for none. The error says why there is none yet.
func (p planned) broker() (*broker, error) {
	switch driver := workOf(p.ClusterManager).WorkDriver; {
	case driver == "" || driver == operatorv1.WorkDriverTypeKube:
		return nil, nil
	case !p.work.Enabled(featuregates.CloudEventsDrivers):
		return nil, fmt.Errorf("switch on the feature gate %s in spec.workConfiguration.featureGates", featuregates.CloudEventsDrivers)
	case p.workDriver == nil:
		return nil, fmt.Errorf("store the configuration of the broker in the Secret %s of the namespace of the operator, under the key %s",
			fleet.SecretWorkDriverConfig, fleet.KeyConfig)
	}
	port, err := brokerPort(workOf(p.ClusterManager).WorkDriver, p.workDriver.Data[fleet.KeyConfig])
	if err != nil {
		return nil, fmt.Errorf("correct the key %s of the Secret %s: %w", fleet.KeyConfig, fleet.SecretWorkDriverConfig, err)
	}
	return &broker{config: p.workDriver, port: port}, nil
}

// brokerPort is the port of the broker in a configuration. The error says what is wrong with that.
func brokerPort(driver operatorv1.WorkDriverType, content []byte) (int32, error) {
	if driver == operatorv1.WorkDriverTypeGRPC {
		config, err := grpcconfig.Parse(content)
		if err != nil {
			return 0, err
		}
		return frame.PortOf("https://" + config.URL), nil
	}
	config, err := mqtt.Parse(content)
	if err != nil {
		return 0, err
	}
	return config.Port(), nil
}

// workController runs the controllers of works.
func (p planned) workController() workload.Component {
	broker, _ := p.broker() // an error is reported
	args := slices.Concat([]string{"/work", "manager"}, p.work.Flags())
	if broker != nil {
		args = append(args, "--work-driver="+string(workOf(p.ClusterManager).WorkDriver), "--work-driver-config="+workDriverDir+"/"+fleet.KeyConfig,
			"--cloudevents-client-id=work-controller-$(POD_NAME)")
	}
	component := p.controller(workController, p.Spec.WorkImagePullSpec, fleet.ServiceAccountWorkController, args)
	if broker != nil {
		const secret = fleet.SecretWorkDriverConfig
		component.Volumes = append(component.Volumes, workload.SecretVolume(secret, workDriverDir, secret, false))
		component.PodAnnotations = map[string]string{annotationConfigHash: broker.hash()}
	}
	return component
}

// hasWorkController tells whether one of the controllers of works has something to do.
func (p planned) hasWorkController() bool {
	broker, _ := p.broker()
	return broker != nil || p.work.Enabled(featuregates.ManifestWorkReplicaSet) || p.work.Enabled(featuregates.CleanUpCompletedManifestWork)
}

// hash changes with the configuration, which the controllers read when they start.
func (b *broker) hash() string {
	content, _ := json.Marshal(b.config.Data) // sorted by key; bytes always have a form in JSON
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
