package hubaccess

import (
	"context"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/agent/brokerapi"
	"github.com/capstan-io/capstan/internal/agent/mqttbroker"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
)

// MQTT gets works by a broker of MQTT, as a client with the given ID, and reaches nothing else of hubs. Without an ID, it is the name of
// the cluster. What there is of a hub has the form in which another process of the agent registers.
func MQTT(config *mqtt.Config, clientID string, registers *Access) *Access {
	works := *registers
	works.Brokered = true
	works.Connect = func(ctx context.Context, _ *clientcmdapi.Config, cluster string) (*rest.Config, error) {
		id := clientID
		if id == "" {
			id = cluster
		}
		broker, err := mqttbroker.New(ctx, config, cluster, id)
		if err != nil {
			return nil, err
		}
		return brokerapi.New(ctx, brokerapi.Options{Broker: broker, Address: config.BrokerHost, Cluster: cluster, Source: id,
			NamesSources: true, Clock: clock.RealClock{}}).Config(), nil
	}
	return &works
}
