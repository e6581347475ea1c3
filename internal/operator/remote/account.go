package remote

import (
	"bytes"
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validity is for how long tokens are requested; the API server may grant less. A token is renewed when a fifth is left.
const validity = 8640 * time.Hour

// Keys of the Secrets, next to kubeconfig and token.
const (
	keyExpiration       = "expiration"
	keyRefresh          = "refresh" // when to renew the token; an extension
	keyAccountNamespace = "serviceaccount_namespace"
	keyAccountName      = "serviceaccount_name"
	keyAccountUID       = "serviceaccount_uid"
)

// Account is a service account on a cluster.
type Account struct {
	// Cluster reads the service account and requests its tokens.
	Cluster client.Client
	// Access is how the cluster is reached; its credential is not used.
	Access *rest.Config
	// Name is the service account.
	Name types.NamespacedName
}

// AccountOf is the service account that a Secret has a kubeconfig of.
func AccountOf(stored *corev1.Secret) types.NamespacedName {
	return types.NamespacedName{Namespace: string(stored.Data[keyAccountNamespace]), Name: string(stored.Data[keyAccountName])}
}

// Has reports whether a Secret has a kubeconfig of the account, which is still the one that it was made for.
func (a Account) Has(ctx context.Context, stored *corev1.Secret) (bool, error) {
	account := &corev1.ServiceAccount{}
	if err := a.Cluster.Get(ctx, a.Name, account); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return string(stored.Data[keyAccountUID]) == string(account.UID), nil
}

// RenewKubeconfig returns the Secret of that name with the kubeconfig of the account, and when its token has to be renewed. stored is what
// there is, nil if there is none; it stays while its token is good and leads to the same account and cluster. The kubeconfig refers to the
// token as a file next to it, so programs that have the Secret as a volume use a new token without a restart.
func RenewKubeconfig(ctx context.Context, now time.Time, account Account, name types.NamespacedName, stored *corev1.Secret) (
	*corev1.Secret, time.Time, error,
) {
	serviceAccount := &corev1.ServiceAccount{}
	if err := account.Cluster.Get(ctx, account.Name, serviceAccount); err != nil {
		return nil, time.Time{}, fmt.Errorf("get ServiceAccount %s: %w", account.Name, err)
	}
	kubeconfig, err := kubeconfigOf(account.Access)
	if err != nil {
		return nil, time.Time{}, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if refresh, good := refreshOf(now, stored, kubeconfig, serviceAccount); good {
		secret.Data = stored.Data
		return secret, refresh, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(validity.Seconds()))}}
	if err := account.Cluster.SubResource("token").Create(ctx, serviceAccount, request); err != nil {
		return nil, time.Time{}, fmt.Errorf("request a token of ServiceAccount %s: %w", account.Name, err)
	}
	expiration := request.Status.ExpirationTimestamp.Time
	refresh := expiration.Add(-expiration.Sub(now) / 5)
	secret.Data = map[string][]byte{
		fleet.KeyKubeconfig: kubeconfig, fleet.KeyToken: []byte(request.Status.Token),
		keyExpiration: []byte(expiration.UTC().Format(time.RFC3339)), keyRefresh: []byte(refresh.UTC().Format(time.RFC3339)),
		keyAccountNamespace: []byte(account.Name.Namespace), keyAccountName: []byte(account.Name.Name),
		keyAccountUID: []byte(serviceAccount.UID),
	}
	return secret, refresh, nil
}

// refreshOf is when the token of the Secret has to be renewed, unless that is due or something else has changed.
func refreshOf(now time.Time, stored *corev1.Secret, kubeconfig []byte, account *corev1.ServiceAccount) (time.Time, bool) {
	if stored == nil || !bytes.Equal(stored.Data[fleet.KeyKubeconfig], kubeconfig) || len(stored.Data[fleet.KeyToken]) == 0 ||
		string(stored.Data[keyAccountUID]) != string(account.UID) {
		return time.Time{}, false
	}
	refresh, err := time.Parse(time.RFC3339, string(stored.Data[keyRefresh]))
	return refresh, err == nil && now.Before(refresh)
}

func kubeconfigOf(access *rest.Config) ([]byte, error) {
	cluster := &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData, TLSServerName: access.ServerName,
		InsecureSkipTLSVerify: access.Insecure}
	if access.Proxy != nil {
		proxy, err := access.Proxy(nil)
		if err != nil {
			return nil, err
		}
		if proxy != nil {
			cluster.ProxyURL = proxy.String()
		}
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"cluster": cluster},
		Contexts:       map[string]*clientcmdapi.Context{"context": {Cluster: "cluster", AuthInfo: "user", Namespace: "default"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": {TokenFile: fleet.KeyToken}},
		CurrentContext: "context",
	})
}
