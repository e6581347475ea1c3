package hubapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// TokenLifetime is how long a token from ServiceAccountToken can be used to join.
const TokenLifetime = time.Hour

// bootstrapTokenSelector finds the bootstrap tokens that are meant for joining clusters.
const bootstrapTokenSelector = "app=cluster-manager"

// ServiceAccountToken makes a token of the bootstrap service account, with which clusters join. After the account was
// deleted, it is created again.
func (h *Hub) ServiceAccountToken(ctx context.Context) (string, error) {
	token, err := h.requestToken(ctx)
	if !apierrors.IsNotFound(err) {
		return token, h.Explain("make a token to join with", err)
	}
	if err := h.CheckIsHub(ctx); err != nil {
		return "", err
	}
	if err := h.restoreAccess(ctx); err != nil {
		return "", err
	}
	token, err = h.requestToken(ctx)
	if apierrors.IsNotFound(err) {
		return "", h.noCredential(ctx, fmt.Errorf("the service account %s/%s is missing: %w",
			fleet.NamespaceOperators, fleet.ServiceAccountBootstrap, err))
	}
	return token, h.Explain("make a token to join with", err)
}

func (h *Hub) requestToken(ctx context.Context) (string, error) {
	seconds := int64(TokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	err := h.Raw().Post().Namespace(fleet.NamespaceOperators).Resource("serviceaccounts").Name(fleet.ServiceAccountBootstrap).
		SubResource("token").Body(request).Do(ctx).Into(request)
	return request.Status.Token, err
}

// BootstrapToken reads the newest bootstrap token that has not expired, as <id>.<secret>.
func (h *Hub) BootstrapToken(ctx context.Context, now time.Time) (string, error) {
	list := &corev1.SecretList{}
	err := h.Client(secrets).Namespace(metav1.NamespaceSystem).
		List(ctx, metav1.ListOptions{LabelSelector: bootstrapTokenSelector}, list)
	if err != nil {
		return "", h.Explain("read the bootstrap tokens", err)
	}
	var newest *corev1.Secret
	for i := range list.Items {
		secret := &list.Items[i]
		if usable(secret, now) && (newest == nil || newest.CreationTimestamp.Before(&secret.CreationTimestamp)) {
			newest = secret
		}
	}
	if newest == nil {
		return "", h.noCredential(ctx, fmt.Errorf("none of the %d Secrets %s<id> with the label %s in %s holds a token that has not expired",
			len(list.Items), bootstrapapi.BootstrapTokenSecretPrefix, bootstrapTokenSelector, metav1.NamespaceSystem))
	}
	return tokenOf(newest), h.ensureRole(ctx)
}

func usable(secret *corev1.Secret, now time.Time) bool {
	id, named := bootstrapsecrets.ParseName(secret.Name)
	return named && secret.DeletionTimestamp.IsZero() && !bootstrapsecrets.HasExpired(secret, now) &&
		bootstraputil.IsValidBootstrapToken(tokenOf(secret)) && id == bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey)
}

func tokenOf(secret *corev1.Secret) string {
	return bootstraputil.TokenFromIDAndSecret(
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey),
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey))
}

// noCredential says what is missing on the hub, unless it is no hub at all.
func (h *Hub) noCredential(ctx context.Context, missing error) error {
	if err := h.CheckIsHub(ctx); errors.Is(err, ErrNotAHub) {
		return err
	}
	return fmt.Errorf("no token to join with: %w\nTry the other kind of token (with or without --use-bootstrap-token); "+
		"a hub of Capstan makes both when it starts.", missing)
}

// Published is what the hub tells everybody about itself.
type Published struct {
	// Server is the URL under which agents reach the hub: the one that the hub publishes, else that of the kubeconfig.
	Server string
	// Pins name the certificate authorities of that URL, for --ca-cert-hash; none if the hub publishes none.
	Pins []string
	// InClusterInfo says that Server is what the hub publishes.
	InClusterInfo bool
}

// Published reads what those who join read as well, but over a connection that is verified.
func (h *Hub) Published(ctx context.Context) (Published, error) {
	published := Published{Server: h.Server}
	info, err := h.publicConfigMap(ctx, bootstrapapi.ConfigMapClusterInfo)
	switch {
	case err == nil:
		if config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey])); err == nil {
			cluster := firstCluster(config)
			published.Server = cmp.Or(cluster.Server, h.Server)
			published.InClusterInfo = cluster.Server != ""
			published.Pins = pinsOf(cluster.CertificateAuthorityData)
		}
		return published, nil
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return published, h.Explain("read the address that the hub publishes", err)
	}
	if root, err := h.publicConfigMap(ctx, configMapRootCA); err == nil {
		published.Pins = pinsOf([]byte(root.Data["ca.crt"]))
	}
	return published, nil
}
