package controlplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/controlplane/rbac"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Names of the standalone control plane's own.
const (
	roleStandaloneBootstrap    = "system:open-cluster-management:bootstrap"
	bindingStandaloneBootstrap = "cluster-bootstrap"
	roleClusterInfo            = "kubeadm:bootstrap-signer-clusterinfo"
	bindingKubeAdmin           = "kube-admin"
	userKubeAdmin              = "kube:admin"
)

// hubPolicy is what the hub adds to the roles of Kubernetes: those who have a bootstrap token, or a token of the bootstrap
// service account, may join, and everybody may read where the hub is and whom to trust.
func hubPolicy(delegatedAuthentication bool) rbac.Policy {
	p := rbac.Policy{
		ClusterRoles: []rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: roleStandaloneBootstrap}, Rules: fleet.BootstrapRules("get", "list", "create")},
			{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleBootstrap}, Rules: fleet.BootstrapRules("get", "create", "list", "watch")},
		},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{
			bind(bindingStandaloneBootstrap, roleStandaloneBootstrap, group(fleet.GroupBootstrap)),
			bind(fleet.ClusterRoleBindingBootstrapTokens, fleet.ClusterRoleBootstrap, group(fleet.GroupBootstrap)),
			bind(fleet.ClusterRoleBindingBootstrapServiceAccount, fleet.ClusterRoleBootstrap, rbacv1.Subject{
				Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap,
			}),
		},
		Roles: map[string][]rbacv1.Role{metav1.NamespacePublic: {{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: roleClusterInfo},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
				ResourceNames: []string{bootstrapapi.ConfigMapClusterInfo},
			}},
		}}},
		RoleBindings: map[string][]rbacv1.RoleBinding{metav1.NamespacePublic: {{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: roleClusterInfo},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: roleClusterInfo},
			Subjects:   []rbacv1.Subject{user("system:anonymous")},
		}}},
	}
	if delegatedAuthentication {
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, bind(bindingKubeAdmin, "cluster-admin", user(userKubeAdmin)))
	}
	return p
}

func bind(name, role string, subject rbacv1.Subject) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// ensureNamespaces creates namespaces that the hub's objects are in, before anything is put there. It fails while one is being deleted:
// that takes nothing new, and loses what it has.
func ensureNamespaces(ctx context.Context, client kubernetes.Interface, names ...string) error {
	var jobs []func() error
	for _, name := range names {
		jobs = append(jobs, func() error {
			live, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			} else if err == nil && live.DeletionTimestamp != nil {
				err = errors.New("it is being deleted, and made again when it is gone; its status.conditions say what it waits for")
			}
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("ensure namespace %s: %w", name, err)
			}
			return nil
		})
	}
	return inParallel(jobs)
}

func ensureBootstrapServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	if err := ensureNamespaces(ctx, client, fleet.NamespaceOperators); err != nil {
		return err
	}
	accounts := client.CoreV1().ServiceAccounts(fleet.NamespaceOperators)
	_, err := accounts.Get(ctx, fleet.ServiceAccountBootstrap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: fleet.ServiceAccountBootstrap}},
			metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ensure service account %s/%s: %w", fleet.NamespaceOperators, fleet.ServiceAccountBootstrap, err)
	}
	return nil
}

// ensureClusterInfo publishes where the hub is and the CA to trust, for those who are about to join.
func ensureClusterInfo(ctx context.Context, client kubernetes.Interface, url string, rootCA []byte) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: rootCA}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write cluster-info: %w", err)
	}
	maps := client.CoreV1().ConfigMaps(metav1.NamespacePublic)
	err = retry.OnRace(func() error {
		info, err := maps.Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = maps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: bootstrapapi.ConfigMapClusterInfo},
				Data:       map[string]string{bootstrapapi.KubeConfigKey: string(content)},
			}, metav1.CreateOptions{})
		case err == nil && info.Data[bootstrapapi.KubeConfigKey] != string(content):
			if info.Data == nil {
				info.Data = map[string]string{}
			}
			info.Data[bootstrapapi.KubeConfigKey] = string(content)
			_, err = maps.Update(ctx, info, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, err)
	}
	return nil
}

// ensureHubInfo publishes what this hub runs. With several on one storage it is what the last one to start runs.
func ensureHubInfo(ctx context.Context, client kubernetes.Interface, info map[string]string) error {
	if err := ensureNamespaces(ctx, client, fleet.NamespaceHub); err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps(fleet.NamespaceHub)
	err := retry.OnRace(func() error {
		published, err := maps.Get(ctx, fleet.ConfigMapHubInfo, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fleet.ConfigMapHubInfo}, Data: info},
				metav1.CreateOptions{})
		case err == nil && !equality.Semantic.DeepEqual(published.Data, info):
			published.Data = info
			_, err = maps.Update(ctx, published, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", fleet.NamespaceHub, fleet.ConfigMapHubInfo, err)
	}
	return nil
}
