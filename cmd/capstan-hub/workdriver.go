package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/hub/work/delivery"
)

const (
	flagWorkDriver       = "work-driver"
	flagWorkDriverConfig = "work-driver-config"
	flagEventsClientID   = "cloudevents-client-id"
)

// The drivers by which works get to agents.
const (
	workDriverKube = "kube"
	workDriverMQTT = "mqtt"
	workDriverGRPC = "grpc"
)

var workDrivers = []string{workDriverKube, workDriverMQTT, workDriverGRPC}

// workDriverFlags choose how works get to agents.
type workDriverFlags struct {
	driver, config, clientID string
}

func (f *workDriverFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.driver, flagWorkDriver, workDriverKube, "How works get to agents: "+workDriverKube+" has them read the API, "+workDriverMQTT+
		" and "+workDriverGRPC+" also send all ManifestWorks by a broker, of MQTT or of gRPC, for agents with the same --workload-source-driver. "+
		"The group work of the controllers has to run.")
	flags.StringVar(&f.config, flagWorkDriverConfig, f.config, "File with the configuration of the broker.")
	flags.StringVar(&f.clientID, flagEventsClientID, f.clientID,
		"Identifier of this process at the broker, which has one connection of each (default: work-controller- and the name of the host), "+
			"with "+workDriverMQTT+".")
}

// transport is nil if agents read the API.
func (f *workDriverFlags) transport() (delivery.Transport, error) {
	switch {
	case !slices.Contains(workDrivers, f.driver):
		return nil, fmt.Errorf("--%s is %q; use one of %s", flagWorkDriver, f.driver, strings.Join(workDrivers, ", "))
	case f.driver == workDriverKube:
		return nil, nil
	case f.config == "":
		return nil, fmt.Errorf("--%s=%s takes --%s, the file with the configuration of the broker", flagWorkDriver, f.driver, flagWorkDriverConfig)
	}
	if f.driver == workDriverGRPC {
		return f.grpc()
	}
	return f.mqtt()
}

func (f *workDriverFlags) grpc() (delivery.Transport, error) {
	content, err := os.ReadFile(f.config)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flagWorkDriverConfig, err)
	}
	config, err := grpcconfig.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("--%s: %s: %w", flagWorkDriverConfig, f.config, err)
	}
	return delivery.NewGRPC(config, clock.RealClock{}), nil
}

func (f *workDriverFlags) mqtt() (delivery.Transport, error) {
	config, err := mqtt.Load(f.config)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flagWorkDriverConfig, err)
	}
	clientID := f.clientID
	if clientID == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--%s is not set, and the name of the host is not known: %w", flagEventsClientID, err)
		}
		clientID = "work-controller-" + host
	}
	return delivery.NewMQTT(config, clientID), nil
}
