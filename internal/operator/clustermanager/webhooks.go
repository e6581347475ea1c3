package clustermanager

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// applyWebhooks has the API server of the hub ask the components, once these run. Until then it asks what it asked before: only the
// authorities that it trusts are always those of now, because components that run have new certificates within a minute.
func applyWebhooks(ctx context.Context, hub *apply.Cluster, installation string, webhooks []client.Object, ready bool) error {
	if ready {
		return hub.Apply(ctx, installation, webhooks...)
	}
	for _, desired := range webhooks {
		if err := trust(ctx, hub.Client, desired); err != nil {
			return fmt.Errorf("renew the authorities that %s trusts: %w", desired.GetName(), err)
		}
	}
	return nil
}

// trust gives the webhooks that exist the authorities of those that are desired.
func trust(ctx context.Context, hub client.Client, desired client.Object) error {
	kind, err := apiutil.GVKForObject(desired, hub.Scheme())
	if err != nil {
		return err
	}
	empty, err := hub.Scheme().New(kind)
	if err != nil {
		return err
	}
	live, isObject := empty.(client.Object)
	if !isObject {
		return fmt.Errorf("%s is no object", kind)
	}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, isObject := live.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%s is no object", kind)
	}
	current := clientConfigs(desired)
	for name, config := range clientConfigs(live) {
		if now, found := current[name]; found {
			config.CABundle = now.CABundle
		}
	}
	_, err = patch.Object(ctx, hub, live, before)
	return err
}

// clientConfigs are how the webhooks of a configuration are reached, by their names.
func clientConfigs(configuration client.Object) map[string]*admissionregistrationv1.WebhookClientConfig {
	configs := map[string]*admissionregistrationv1.WebhookClientConfig{}
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs[configuration.Webhooks[i].Name] = &configuration.Webhooks[i].ClientConfig
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs[configuration.Webhooks[i].Name] = &configuration.Webhooks[i].ClientConfig
		}
	}
	return configs
}
