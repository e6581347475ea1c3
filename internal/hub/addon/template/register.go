package template

import (
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/engine"
)

// manager labels the permissions on the hub of add-ons with templates.
const manager = "addon-templates"

// Options configure the controllers.
type Options struct {
	// GRPCServer is the user as whom the gRPC server of the hub requests certificates, in the name of agents.
	GRPCServer string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Register adds the controllers of add-ons with templates to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	cached, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true},
	})
	if err != nil {
		return fmt.Errorf("make the client of the add-ons from templates: %w", err)
	}
	return engine.Register(mgr, engine.Options{
		Manager: manager, Catalogue: NewCatalogue(cached, mgr.GetAPIReader(), mgr.GetEventRecorder("addon-template-controller")),
		Configs: Configs(), GRPCServer: o.GRPCServer, Clock: o.Clock,
	})
}
