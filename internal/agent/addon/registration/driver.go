package registration

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// driverTimeout is how long the driver of an add-on may stay unreported while its first certificate is requested: mostly that takes no
// longer, and both are reported in one write. Managers may wait for the driver.
const driverTimeout = time.Second

// declareDriver reports to the hub how the add-on gets its access: at once, or together with the first report on a certificate. It
// returns when to do that; zero is never.
func (c *Controller) declareDriver(addOn *addonv1beta1.ManagedClusterAddOn, reportsCertificate bool) (due time.Time) {
	key := client.ObjectKeyFromObject(addOn)
	if !reportsCertificate && c.Driver == addonv1beta1.KubeClientDriverCSR && lacksDriver(addOn) {
		if c.silent[key].IsZero() {
			c.silent[key] = c.Clock.Now()
		}
		if due := c.silent[key].Add(driverTimeout); c.Clock.Now().Before(due) {
			return due
		}
	}
	delete(c.silent, key)
	for i := range addOn.Status.Registrations {
		registration := &addOn.Status.Registrations[i]
		if registration.Type != addonv1beta1.KubeClient {
			continue
		}
		if registration.KubeClient == nil {
			registration.KubeClient = &addonv1beta1.KubeClientConfig{}
		}
		registration.KubeClient.Driver = c.Driver
	}
	return time.Time{}
}

// lacksDriver reports whether an add-on has registrations of the kind, and none of them a driver. One that has to change changes at once:
// the hub gives rights to another identity then.
func lacksDriver(addOn *addonv1beta1.ManagedClusterAddOn) (found bool) {
	for _, registration := range addOn.Status.Registrations {
		if registration.Type != addonv1beta1.KubeClient {
			continue
		}
		if registration.KubeClient != nil && registration.KubeClient.Driver != "" {
			return false
		}
		found = true
	}
	return found
}
