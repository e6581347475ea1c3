package cli

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CP-10: once it is written that a cluster is denied, deleted or cut off, or has the add-on no more, what is open in its tunnel ends, and
// there is none.
func TestRevokedTunnels(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(t *testing.T, p *framework.Proxied){
		"tunnel-denied": func(t *testing.T, p *framework.Proxied) {
			framework.MergePatch(t, framework.Hub.Client(t), framework.ManagedCluster(t, p.Name), `{"spec":{"hubAcceptsClient":false}}`)
		},
		"tunnel-deleted": func(t *testing.T, p *framework.Proxied) {
			framework.DeleteCluster(t, framework.Hub.Client(t), p.Name)
		},
		"tunnel-cut-off": func(t *testing.T, p *framework.Proxied) {
			framework.Hub.Capstan(t, "", "deny", "--clusters", p.Name, "--now").Succeeds(t)
		},
		"tunnel-add-on": func(t *testing.T, p *framework.Proxied) {
			if err := framework.Hub.Client(t).Delete(t.Context(), p.AddOn()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := framework.NewProxied(t, framework.Hub, name)
			p.Bind(t, p.Alice)
			open, err := p.As(t, p.Alice).CoreV1().ConfigMaps(p.Name).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan time.Time, 1)
			go func() {
				for range open.ResultChan() {
				}
				ended <- time.Now()
			}()
			revoke(t, p)
			revoked := time.Now()
			select {
			case at := <-ended:
				t.Logf("what was open ended after %s", at.Sub(revoked).Round(time.Millisecond))
			case <-time.After(env.WaitTimeout):
				t.Fatal("what was open goes on")
			}
			env.Eventually(t, func(ctx context.Context) error {
				if err := p.As(t, p.Alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err == nil {
					return fmt.Errorf("the cluster answers")
				}
				return nil
			})
		})
	}
}
