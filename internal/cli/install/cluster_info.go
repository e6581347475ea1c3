package install

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// showsClusterInfo reports whether everybody may read the ConfigMap cluster-info.
func showsClusterInfo(ctx context.Context, hub *hubapi.Hub) (bool, error) {
	err := readAnonymously(ctx, hub)
	if err != nil && hubapi.Withheld(err) {
		return false, nil
	}
	return err == nil, hub.Explain("read what the cluster shows to everybody", err)
}

func readAnonymously(ctx context.Context, hub *hubapi.Hub) error {
	anonymous, err := hubapi.New(rest.AnonymousClientConfig(hub.Config()))
	if err != nil {
		return err
	}
	configMaps := anonymous.Client(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(metav1.NamespacePublic)
	return configMaps.Get(ctx, bootstrapapi.ConfigMapClusterInfo, &corev1.ConfigMap{})
}

// awaitClusterInfo waits until everybody may read the ConfigMap cluster-info: rights that were just given count a moment later. If it is
// not in time, the error is why.
func awaitClusterInfo(ctx context.Context, hub *hubapi.Hub) (shown bool, err error) {
	const interval = 200 * time.Millisecond
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		if now := readAnonymously(ctx, hub); ctx.Err() == nil {
			err = now
		}
		return err == nil, nil
	})
	return err == nil, err
}
