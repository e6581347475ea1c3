package inprocess_test

import "testing"

// AM-07, AF-11: an add-on that the install strategy has made is not registered, and so not deployed, before its configurations are known:
// managers take a status without configurations for an add-on that has none. They try again on a conflict.
func TestConfigurationsComeFirst(t *testing.T) {
	t.Parallel()
	const (
		registered = `{type: RegistrationApplied, status: "True"}`
		refused    = `{type: RegistrationApplied, status: "False"}`
		configured = `{type: Configured, status: "False"}`
		other      = `{type: Available, status: "True"}`
		pending    = `configReferences: [{group: g, resource: r, desiredConfig: {name: c1, specHash: ""}}]`
	)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		addOn := func(by, status string) string {
			return `{apiVersion: addon.open-cluster-management.io/` + version +
				`, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1, annotations: {` + by + `}}, spec: {}, status: ` + status + `}`
		}
		const strategy, hand = "capstan.io/installed-by: install-strategy", ""
		for _, test := range []struct {
			name, by, old, now string
			tooEarly           bool
		}{
			{"before they are known", strategy, `{}`, `{conditions: [` + registered + `]}`, true},
			{"whatever it says", strategy, `{conditions: [` + other + `]}`, `{conditions: [` + other + `, ` + refused +
				`], supportedConfigs: [{group: g, resource: r}]}`, true},
			{"with an empty list of them", strategy, `{configReferences: []}`, `{configReferences: [], conditions: [` + registered + `]}`, true},
			{"when they are announced", strategy, `{` + pending + `}`, `{` + pending + `, conditions: [` + registered + `]}`, false},
			{"when it is known that there are none", strategy, `{conditions: [` + configured + `]}`, `{conditions: [` + configured + `, ` +
				registered + `]}`, false},
			{"another condition", strategy, `{}`, `{conditions: [` + other + `]}`, false},
			{"what it supports", strategy, `{}`, `{supportedConfigs: [{group: g, resource: r}], namespace: ns}`, false},
			{"one that has been registered before", strategy, `{conditions: [` + refused + `]}`, `{conditions: [` + registered + `]}`, false},
			{"one that a user has made", hand, `{}`, `{conditions: [` + registered + `]}`, false},
		} {
			t.Run(version+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				code, text := int32(0), ""
				if test.tooEarly {
					code, text = 409, "the hub has not said yet which configurations it has"
				}
				checkStatus(t, newServer().write(t, object(t, addOn(test.by, test.now)), object(t, addOn(test.by, test.old)), "status"), code, text)
			})
		}
	}
}
