// Package engine registers the controllers that a manager runs for its add-ons. The hub runs them for the add-ons of AddOnTemplates,
// and authors of other add-ons through package addon/manager.
package engine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/addon/internal/approve"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/installation"
	"github.com/capstan-io/capstan/addon/internal/requeue"
	"github.com/capstan-io/capstan/addon/internal/sign"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// Catalogue finds the code of an add-on.
type Catalogue = catalogue.Catalogue

// Options configure the controllers.
type Options struct {
	// Manager identifies the manager that runs the add-ons. It has to be a valid label value and stay the same: the permissions that the
	// manager applies are labelled with it.
	Manager string
	// Catalogue has the add-ons that the controllers run.
	Catalogue Catalogue
	// Configs are the types of configurations that any of the add-ons may read.
	Configs []schema.GroupVersionResource
	// Requeue enqueues single add-ons again; nil enqueues none.
	Requeue *requeue.AddOns
	// GRPCServer is the user as whom the gRPC server of the hub requests certificates, in the name of agents.
	GRPCServer string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Register adds the controllers to the manager. Its scheme needs RBAC, CertificateSigningRequests, clusters, works and add-ons.
func Register(mgr ctrl.Manager, o Options) error {
	err := errors.Join(
		signingrequest.AddAddOnIndex(context.Background(), mgr.GetFieldIndexer()),
		installation.Register(mgr, installation.Options{Manager: o.Manager, Catalogue: o.Catalogue, Configs: o.Configs, Requeue: o.Requeue,
			Clock: o.Clock}),
		approve.Register(mgr, approve.Options{Catalogue: o.Catalogue, Requeue: o.Requeue, GRPCServer: o.GRPCServer, Clock: o.Clock}),
		sign.Register(mgr, sign.Options{Catalogue: o.Catalogue, Requeue: o.Requeue}),
	)
	if err != nil {
		return fmt.Errorf("register the controllers of add-ons: %w", err)
	}
	return nil
}
