package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// reconcileToken requests a token of the add-on's service account if there is no valid one or it is due for renewal, and saves what the
// Secret is to hold.
func (c *Controller) reconcileToken(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret,
	secret *corev1.Secret) secretState {
	token := string(secret.Data[fleet.KeyToken])
	now, err := c.readToken(addOn, w, secret)
	refreshed := false
	if errors.Is(err, errNoAccount) {
		return secretState{lack: c.lackOfToken(w, secret)} // the hub says when there is one
	}
	if err != nil || !c.Clock.Now().Before(now.due) {
		if token, err = c.newToken(ctx, addOn); err != nil {
			now.err = err
			return now
		}
		c.renewed[w.id()] = c.Clock.Now()
		if now, err = c.readToken(addOn, w, &corev1.Secret{Data: map[string][]byte{fleet.KeyToken: []byte(token)}}); err != nil {
			return secretState{err: err}
		}
		refreshed = true
	}
	data := map[string][]byte{fleet.KeyToken: []byte(token), fleet.KeyKubeconfig: w.kubeconfig}
	now.err = c.clusters[w.cluster].save(ctx, w.secret, c.marksOf(w), data, fleet.KeyTLSCert, fleet.KeyTLSKey)
	if refreshed && now.err == nil {
		c.Record(corev1.EventTypeNormal, fleet.EventAddOnTokenRefreshed, "Renew", "The token of add-on %s for the hub is valid until %s",
			addOn.Name, now.notAfter.Format(time.RFC3339))
	}
	return now
}

// lackOfToken returns why there is no valid token, as far as that is known without the service account.
func (c *Controller) lackOfToken(w *desiredSecret, secret *corev1.Secret) string {
	if len(secret.Data[fleet.KeyToken]) == 0 {
		return errNoCredential.Error()
	}
	if err := c.checkHub(w, secret); err != nil {
		return err.Error()
	}
	return ""
}

func (c *Controller) newToken(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (string, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = c.Identity.Cluster, fleet.AddOnServiceAccount(addOn.Name)
	request := &authenticationv1.TokenRequest{}
	if c.TokenLifetime > 0 {
		request.Spec.ExpirationSeconds = ptr.To(int64(c.TokenLifetime.Seconds()))
	}
	if err := c.Uncached.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("ask the hub for a token of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return request.Status.Token, nil
}

// errNoAccount says that the hub has no service account for the add-on yet.
var errNoAccount = errors.New("the service account of the add-on is not ready")

// tokenAlgorithms are those with which API servers sign tokens of service accounts.
var tokenAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// claims are what the agent reads of a token. It does not verify the signature: the hub does that, and the agent would only request
// another token.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		ServiceAccount struct {
			UID types.UID `json:"uid"`
		} `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// readToken returns how long the token is valid. It fails if it is not of the service account that there is now.
func (c *Controller) readToken(addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret, secret *corev1.Secret) (secretState, error) {
	cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionTokenInfrastructureReady)
	if cond == nil || cond.Status != metav1.ConditionTrue {
		return secretState{}, errNoAccount
	}
	if err := c.checkHub(w, secret); err != nil {
		return secretState{}, err
	}
	token, err := jwt.ParseSigned(string(secret.Data[fleet.KeyToken]), tokenAlgorithms)
	if err != nil {
		return secretState{}, fmt.Errorf("the token cannot be read: %w", err)
	}
	var parsed claims
	if err := token.UnsafeClaimsWithoutVerification(&parsed); err != nil {
		return secretState{}, fmt.Errorf("the token cannot be read: %w", err)
	}
	if uid := fleet.TokenInfrastructureUID(cond.Message); uid != string(parsed.Kubernetes.ServiceAccount.UID) {
		return secretState{}, fmt.Errorf("the token is of the service account with UID %s, and there is now the one with UID %s",
			parsed.Kubernetes.ServiceAccount.UID, uid)
	}
	if parsed.IssuedAt == nil || parsed.Expiry == nil {
		return secretState{}, errors.New("the token does not say how long it is valid")
	}
	return c.renewal(w, parsed.IssuedAt.Time().In(time.UTC), parsed.Expiry.Time().In(time.UTC)), nil
}
