package sandbox

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	scheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"github.com/capstan-io/capstan/internal/controlplane/rbac"
)

// stockHooks are the hooks of the API server that installDefaults stands in for:
// each of them begins with an idle second.
var stockHooks = []string{rbacrest.PostStartHookName, schedulingrest.PostStartHookName}

// installDefaults makes the roles, bindings and priority classes exist that every
// Kubernetes has, and restores what is missing of them.
func installDefaults(ctx context.Context, client kubernetes.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rbac.Ensure(ctx, client, rbac.Kubernetes()) })
	group.Go(func() error { return installPriorityClasses(ctx, client) })
	return group.Wait()
}

func installPriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	for _, class := range scheduling.SystemPriorityClasses() {
		_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install PriorityClass %s: %w", class.Name, err)
		}
	}
	return nil
}
