package controlplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// tokenLifetime is how long a bootstrap token is valid.
	tokenLifetime = 24 * time.Hour
	// tokenRenewal is what is left of the current token when the next one takes its place, and so the least time that
	// a user who is given a token has for using it. By as much, the clock of another process of the hub may be ahead.
	tokenRenewal = 12 * time.Hour

	// longestLeft is more than what is left of any token that was made by a right clock.
	longestLeft = tokenLifetime + tokenRenewal

	tokenRetry = 10 * time.Second

	// longestTokenWait bounds a wait: a timer does not count the time for which a machine was suspended.
	longestTokenWait = 10 * time.Minute
)

// tokenKeeper keeps one bootstrap token current: found again at every start, replaced ahead of its end, made
// again when a user deletes it. A replaced token stays valid until it ends, but is no longer found under the label;
// the token cleaner removes it then.
type tokenKeeper struct {
	client kubernetes.Interface
	clock  clock.Clock
	// ensuring is held by who makes or replaces tokens, so that one is made.
	ensuring sync.Mutex
}

var currentTokens = labels.Set{fleet.LabelApp: fleet.AppClusterManager}

// ensure makes sure that there is a current token and returns when it is to be reconciled again.
func (k *tokenKeeper) ensure(ctx context.Context) (time.Time, error) {
	k.ensuring.Lock()
	defer k.ensuring.Unlock()
	secrets, err := k.client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: currentTokens.String()})
	if err != nil {
		return time.Time{}, fmt.Errorf("list bootstrap tokens: %w", err)
	}
	var current time.Time
	var outgoing []corev1.Secret
	for _, secret := range secrets.Items {
		end, ours := tokenEnd(&secret)
		left := end.Sub(k.clock.Now())
		switch {
		case !ours:
		// What has more left was made while the clock was ahead, and would be current until it is as late.
		case left <= tokenRenewal || left > longestLeft || !current.IsZero():
			outgoing = append(outgoing, secret)
		default:
			current = end
		}
	}
	if current.IsZero() {
		if current, err = k.create(ctx); err != nil {
			return time.Time{}, err
		}
	}
	// Only now: there is no moment without a token.
	for i := range outgoing {
		if err := k.retire(ctx, &outgoing[i]); err != nil {
			return time.Time{}, err
		}
	}
	return current.Add(-tokenRenewal), nil
}

// tokenEnd is when a token made here ends; ours is false for other Secrets and for tokens a user made without an end.
func tokenEnd(secret *corev1.Secret) (end time.Time, ours bool) {
	if secret.Type != bootstrapapi.SecretTypeBootstrapToken {
		return time.Time{}, false
	}
	end, err := time.Parse(time.RFC3339, string(secret.Data[bootstrapapi.BootstrapTokenExpirationKey]))
	return end, err == nil
}

func (k *tokenKeeper) create(ctx context.Context) (time.Time, error) {
	token, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return time.Time{}, err
	}
	id, secret := token[:bootstrapapi.BootstrapTokenIDBytes], token[bootstrapapi.BootstrapTokenIDBytes+1:]
	end := k.clock.Now().Add(tokenLifetime).UTC().Truncate(time.Second)
	_, err = k.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstraputil.BootstrapTokenSecretName(id), Labels: currentTokens},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey:               id,
			bootstrapapi.BootstrapTokenSecretKey:           secret,
			bootstrapapi.BootstrapTokenExpirationKey:       end.Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageAuthentication: "true",
			bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
			bootstrapapi.BootstrapTokenExtraGroupsKey:      fleet.GroupBootstrap,
			bootstrapapi.BootstrapTokenDescriptionKey:      "For clusters that join this hub. Replaced by the hub before it expires.",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("create a bootstrap token: %w", err)
	}
	return end, nil
}

// retire takes the label of current tokens off, and has a token that was made while the clock was ahead end with others that are retired.
// Other processes of the hub may do so at the same time.
func (k *tokenKeeper) retire(ctx context.Context, secret *corev1.Secret) error {
	end := secret.Data[bootstrapapi.BootstrapTokenExpirationKey]
	now := k.clock.Now()
	if made, _ := tokenEnd(secret); made.Sub(now) > longestLeft {
		end = []byte(now.Add(tokenRenewal).UTC().Format(time.RFC3339))
	}
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: null}}, "data": {%q: %q}}`, fleet.LabelApp,
		bootstrapapi.BootstrapTokenExpirationKey, base64.StdEncoding.EncodeToString(end))
	_, err := k.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("retire bootstrap token %s: %w", secret.Name, err)
	}
	return nil
}

// run keeps the token current until ctx ends.
func (k *tokenKeeper) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	k.watch(ctx, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for {
		next, err := k.ensure(ctx)
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "The bootstrap token is not current; trying again", "after", tokenRetry)
			}
			next = k.clock.Now().Add(tokenRetry)
		}
		timer := k.clock.NewTimer(min(next.Sub(k.clock.Now()), longestTokenWait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// watch calls back when a current token is deleted or changed after it returned.
func (k *tokenKeeper) watch(ctx context.Context, changed func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0,
		informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = currentTokens.String() }))
	_, err := factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Changes of the bootstrap token are not seen until it is renewed")
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}
