package template

import (
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// What one pass over one cluster costs; a hub has as many as it has clusters times add-ons.
func BenchmarkPass(b *testing.B) {
	c := hub([]string{templateV1, deployConfig})
	agent := &agent{Catalogue: NewCatalogue(c, c, &events.FakeRecorder{}), name: "hello"}
	installation := installed(templateV1, deployConfig)
	installation.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{addon.KubeClient(installation, "hello")}
	for b.Loop() {
		_, err := agent.installNamespace(b.Context(), installation)
		if err == nil {
			_, err = agent.registrations(b.Context(), installation)
		}
		if err == nil {
			_, err = agent.permissions(b.Context(), installation)
		}
		if err == nil {
			_, err = agent.Manifests(b.Context(), installation)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
