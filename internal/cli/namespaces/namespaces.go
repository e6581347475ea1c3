// Package namespaces reads Namespaces of a hub.
package namespaces

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

var resource = corev1.SchemeGroupVersion.WithResource("namespaces")

// Exists reports whether the hub has a namespace.
func Exists(ctx context.Context, hub *hubapi.Hub, name string) (bool, error) {
	err := hub.Client(resource).Get(ctx, name, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, hub.Explain("look for namespace "+name, err)
}

// Names are the names of the namespaces of the hub.
func Names(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
	list := &corev1.NamespaceList{}
	err := hub.Client(resource).List(ctx, metav1.ListOptions{}, list)
	return hubapi.ObjectNames(list.Items), hub.Explain("list namespaces", err)
}
