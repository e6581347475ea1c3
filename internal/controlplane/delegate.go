package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationgroup "k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// delegationTTL is for how long the hosting cluster's answer about a token is cached.
	delegationTTL = 10 * time.Second
	// delegationTimeout is how long the hosting cluster has to give it.
	delegationTimeout = 10 * time.Second

	// Where a cluster says which CA signs its clients.
	authenticationNamespace = "kube-system"
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
)

// hostingUsers are the users of the hosting cluster, when these are let in.
type hostingUsers struct {
	// reviews are by which tokens are authenticated.
	reviews authenticationv1client.AuthenticationV1Interface
	// clientCA signs their certificates.
	clientCA dynamiccertificates.CAContentProvider
}

// delegateAuthentication lets the users of the hosting cluster in: their tokens are shown to it, their certificates are
// verified by its client CA. They have no rights on the hub but those granted here.
func (h *hub) delegateAuthentication(ctx context.Context) error {
	if !h.DelegatingAuthentication {
		return nil
	}
	if h.Hosting == nil {
		klog.FromContext(ctx).Info("--delegating-authentication has no effect: this hub does not run in a cluster")
		h.DelegatingAuthentication = false
		return nil
	}
	unthrottled := rest.CopyConfig(h.Hosting.Client)
	unthrottled.QPS = -1 // the cache is the throttle
	client, err := kubernetes.NewForConfig(unthrottled)
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	clientCA, err := dynamiccertificates.NewDynamicCAFromConfigMapController("hosting-cluster-client-ca", authenticationNamespace,
		authenticationConfigMap, clientCAKey, client)
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	h.hostingUsers = &hostingUsers{reviews: client.AuthenticationV1(), clientCA: clientCA}
	return nil
}

// join adds the users of the hosting cluster to those the hub knows itself. The API server's own option for tokens waits 30 seconds for an
// answer, and cannot be configured otherwise; and its own for certificates does not say which CA signed one.
func (u *hostingUsers) join(info *genericapiserver.AuthenticationInfo) error {
	uncached, err := webhook.NewFromInterface(u.reviews, info.APIAudiences, *genericoptions.DefaultAuthWebhookRetryBackoff(),
		delegationTimeout,
		webhook.AuthenticatorMetrics{
			RecordRequestTotal:   func(context.Context, string) {},
			RecordRequestLatency: func(context.Context, string, float64) {},
		})
	if err != nil {
		return fmt.Errorf("delegate authentication: %w", err)
	}
	// A token for their API is for that of the hub, too, and for nothing else. The cache, which comes last, keeps what is for whom apart.
	forOurs := authenticator.WrapAudienceAgnosticToken(info.APIAudiences, forTheirAPI{uncached})
	tokens := tokencache.New(forOurs, false, delegationTTL, delegationTTL)
	theirs := union.New(
		x509.NewDynamic(u.clientCA.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	info.Authenticator = union.New(info.Authenticator, authenticationgroup.NewAuthenticatedGroupAdder(guests{theirs}))
	return nil
}

// forTheirAPI authenticates the tokens that are for the API server of the hosting cluster. Its name for that audience may be another
// than the hub has for its own, so the question names none.
type forTheirAPI struct{ authenticator.Token }

// AuthenticateToken implements authenticator.Token.
func (t forTheirAPI) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	// The context has the audience of the hub, which cannot be taken out of it.
	authenticating, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return t.Token.AuthenticateToken(authenticating, token) //nolint:contextcheck // it ends with the context
}

// hostingPrefix is the prefix of the names on the hub of what has a name of the system in the hosting cluster.
const hostingPrefix = "hosting-cluster:"

// guests authenticates users of another cluster. Names that the system of either cluster gives, such as those of service accounts, agents
// and bootstrap tokens, mean another user here than there, so these get a prefix. Who is master of the hosting cluster has the hub in hand
// anyway, and stays master.
type guests struct{ authenticator.Request }

// AuthenticateRequest implements authenticator.Request.
func (g guests) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := g.Request.AuthenticateRequest(r)
	if err != nil || !ok {
		return nil, false, err
	}
	theirs := response.User
	guest := &authenticationuser.DefaultInfo{Name: guestName(theirs.GetName()), UID: theirs.GetUID(), Extra: theirs.GetExtra()}
	for _, group := range theirs.GetGroups() {
		if group != authenticationuser.SystemPrivilegedGroup && group != authenticationuser.AllAuthenticated {
			group = guestName(group)
		}
		guest.Groups = append(guest.Groups, group)
	}
	return &authenticator.Response{Audiences: response.Audiences, User: guest}, true, nil
}

func guestName(name string) string {
	for _, ours := range []string{"system:", fleet.AWSClusterGroup(""), hostingPrefix} {
		if strings.HasPrefix(name, ours) {
			return hostingPrefix + name
		}
	}
	return name
}

// The signer of OpenShift's load balancer certificates, which its clients already trust, and the folder it is copied to.
const (
	signerNamespace = "openshift-kube-apiserver-operator"
	signerSecret    = "loadbalancer-serving-signer"
	signerDir       = "controlplane-ca"
)

// copySigner makes the signer of a hosting OpenShift the root CA of the hub. On other clusters, or when the hub may not
// read it, it names no files and the hub makes a root of its own.
func (h *Hosting) copySigner(ctx context.Context, certDir string) (certFile, keyFile string, err error) {
	client, err := kubernetes.NewForConfig(h.Client)
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(certDir, signerDir)
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	secret, err := client.CoreV1().Secrets(signerNamespace).Get(ctx, signerSecret, metav1.GetOptions{})
	if err != nil {
		if _, statErr := os.Stat(certFile); statErr == nil {
			// It was there at an earlier start: the hub keeps its identity.
			return certFile, keyFile, nil
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", "", nil
		}
		return "", "", fmt.Errorf("look for the signer of a hosting OpenShift: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	return certFile, keyFile, errors.Join(
		atomicfile.WriteSecret(keyFile, secret.Data[corev1.TLSPrivateKeyKey]),
		atomicfile.WriteSecret(certFile, secret.Data[corev1.TLSCertKey]))
}
