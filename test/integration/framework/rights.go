package framework

import (
	"context"
	"fmt"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AwaitRefused waits until the hub does not even know the agent.
func AwaitRefused(t *testing.T, agent client.Client, cluster string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		for right, err := range rights(ctx, agent, cluster) {
			if !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("may it %s: %w", right, err)
			}
		}
		return nil
	})
}

// rights are what an accepted agent may do, each tried on the hub.
func rights(ctx context.Context, agent client.Client, cluster string) map[string]error {
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	lease := &coordinationv1.Lease{}
	return map[string]error{
		"read its ManagedCluster":       agent.Get(ctx, client.ObjectKeyFromObject(mc), mc.DeepCopy()),
		"report on its ManagedCluster":  agent.Status().Patch(ctx, mc.DeepCopy(), Merge(`{}`)),
		"read its lease":                agent.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, lease),
		"read its works":                agent.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace(cluster)),
		"read its certificate requests": agent.List(ctx, &certificatesv1.CertificateSigningRequestList{}),
		"request another certificate":   agent.Create(ctx, &certificatesv1.CertificateSigningRequest{}),
		"create an event in its namespace": agent.Create(ctx,
			&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, GenerateName: "e-"}}),
	}
}

// AwaitRights waits until the agent has these rights and no others.
func AwaitRights(t *testing.T, agent client.Client, cluster string, want func(right string) bool) {
	t.Helper()
	start := time.Now()
	env.Eventually(t, func(ctx context.Context) error {
		for right, err := range rights(ctx, agent, cluster) {
			if apierrors.IsForbidden(err) == want(right) {
				return fmt.Errorf("may it %s: %w", right, err)
			}
		}
		return nil
	})
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
}

// AllRights is for AwaitRights: the agent has them all.
func AllRights(string) bool { return true }
