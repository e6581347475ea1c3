package controlplane

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// suspendable is the clock of a machine that can be suspended, for which its timers do not run.
type suspendable struct {
	clock.RealClock
	suspended atomic.Int64
}

func (c *suspendable) Now() time.Time { return time.Now().Add(time.Duration(c.suspended.Load())) }

// tokenAPI is a fake that does with new Secrets what the API server does.
func tokenAPI() *fake.Clientset {
	api := fake.NewClientset()
	api.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
		secret.Data = map[string][]byte{}
		for key, value := range secret.StringData {
			secret.Data[key] = []byte(value)
		}
		return false, nil, nil
	})
	return api
}

func currentToken(t *testing.T, api *fake.Clientset) *corev1.Secret {
	t.Helper()
	list, err := api.CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{LabelSelector: "app=cluster-manager"})
	must(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("there are %d current tokens", len(list.Items))
	}
	return &list.Items[0]
}

// SC-19: a token that a user deletes while the hub starts is replaced: the hub does not look before it learns of what follows.
func TestTokenDeletedAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := tokenAPI()
		keeper := &tokenKeeper{client: api, clock: clock.RealClock{}}
		_, err := keeper.ensure(t.Context())
		must(t, err)
		first := currentToken(t, api)
		var once sync.Once
		api.PrependReactor("list", "secrets", func(action clienttesting.Action) (done bool, list runtime.Object, err error) {
			once.Do(func() {
				done, list = true, &corev1.SecretList{Items: []corev1.Secret{*first}}
				err = api.Tracker().Delete(action.GetResource(), "kube-system", first.Name)
			})
			return done, list, err
		})
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); keeper.run(ctx) }()
		<-time.After(time.Minute)
		if second := currentToken(t, api); second.Name == first.Name {
			t.Error("the token that was deleted is the current one")
		}
		stop()
		<-stopped
	})
}

// SC-19: a token that was made while the clock was ahead is not the current one for as long, and not valid either; one of a process whose
// clock is a little ahead is.
func TestTokenOfAClockAhead(t *testing.T) {
	t.Parallel()
	for ahead, replaced := range map[time.Duration]bool{time.Minute: false, 200 * 24 * time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			api := tokenAPI()
			machine := &suspendable{}
			keeper := &tokenKeeper{client: api, clock: machine}
			machine.suspended.Store(int64(ahead))
			_, err := keeper.ensure(t.Context())
			must(t, err)
			first := currentToken(t, api)
			machine.suspended.Store(0)
			next, err := keeper.ensure(t.Context())
			must(t, err)
			if second := currentToken(t, api); (second.Name != first.Name) != replaced {
				t.Errorf("%s ahead: the token is replaced: %t", ahead, !replaced)
			}
			first, err = api.CoreV1().Secrets(first.Namespace).Get(t.Context(), first.Name, metav1.GetOptions{})
			must(t, err)
			if end, ours := tokenEnd(first); !ours || replaced && !end.Equal(machine.Now().Add(tokenRenewal)) {
				t.Errorf("%s ahead: the first token is valid until %s", ahead, end)
			}
			if left := next.Sub(machine.Now()); left > tokenLifetime {
				t.Errorf("%s ahead: the next one comes in %s", ahead, left)
			}
		})
	}
}

// SC-19: the token of a hub whose machine was suspended is renewed soon after that.
func TestTokenAfterSuspension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := tokenAPI()
		machine := &suspendable{}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); (&tokenKeeper{client: api, clock: machine}).run(ctx) }()
		<-time.After(time.Minute)
		first := currentToken(t, api)
		machine.suspended.Store(int64(23 * time.Hour))
		<-time.After(longestTokenWait)
		if second := currentToken(t, api); second.Name == first.Name {
			t.Error("a token of an hour is the current one")
		}
		stop()
		<-stopped
	})
}
