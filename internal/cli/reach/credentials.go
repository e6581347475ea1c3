package reach

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/auth/exec"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/program"
)

const credentialsLong = `Print a credential for a cluster, as a credential plugin of client-go.

Clients that reach clusters by ClusterProfiles run it, with the access provider open-cluster-management: they say in
KUBERNETES_EXEC_INFO for which cluster. It is yours for the hub, which passes requests on to the cluster in your name; it is printed
for the server and the certificate authority of the kubeconfig only and for the user server of the hub's chart cluster-proxy, as
APIService v1alpha1.reach.capstan.io says who that is. Of a certificate, the private key is printed, too.

With --managed-serviceaccount, it is the token in the Secret CLUSTER-NAME next to the ClusterProfile, where the hub copies it for
ManagedServiceAccounts with the label authentication.open-cluster-management.io/sync-to-clusterprofile=true. In a pod, it is read from
the cluster of the pod and its namespace; otherwise, and with --kubeconfig, from the hub of the kubeconfig and the namespace of its
context.`

// credentials is one run of "capstan credentials": the flags say whose credential it prints.
type credentials struct {
	*options.Global
	account   string
	namespace string
}

// NewCredentialsCommand is "capstan credentials".
func NewCredentialsCommand(global *options.Global) *cobra.Command {
	f := &credentials{Global: global}
	command := &cobra.Command{
		Use:     "credentials [--managed-serviceaccount NAME]",
		Aliases: []string{"credential"},
		Short:   "Print a credential for a cluster, as a credential plugin of clients that know ClusterProfiles",
		Long:    credentialsLong,
		Example: "  # In the file of access providers of a client\n" +
			`  {"providers": [{"name": "open-cluster-management", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1",` + "\n" +
			`    "command": "capstan", "args": ["credentials"], "provideClusterInfo": true}}]}`,
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&f.account, "managed-serviceaccount", "", "name of a ManagedServiceAccount, to be that on the cluster")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the ClusterProfile and the Secret (default: of the pod or the context)")
	options.Complete(command, "managed-serviceaccount", cobra.NoFileCompletions)
	options.Complete(command, "namespace", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, _ []string) error {
		request, err := loadExecRequest()
		if err != nil {
			return err
		}
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		status, err := f.credential(ctx, request)
		if err != nil {
			return err
		}
		return json.NewEncoder(f.Out).Encode(clientauthenticationv1.ExecCredential{
			TypeMeta: metav1.TypeMeta{APIVersion: request.version, Kind: "ExecCredential"}, Status: status,
		})
	}
	return command
}

// execInfo is the environment variable in which a client says what it requests.
const execInfo = "KUBERNETES_EXEC_INFO"

// execRequest is what a client requests of a credential plugin.
type execRequest struct {
	// version is that of the ExecCredential.
	version string
	// cluster is the name of the cluster, of the extension in the ClusterProfile.
	cluster string
	// server is what the credential is for.
	server *rest.Config
}

// loadExecRequest reads the request of a client.
func loadExecRequest() (request execRequest, err error) {
	credential, server, err := exec.LoadExecCredentialFromEnv()
	if err != nil {
		return request, fmt.Errorf("%s: %w; have client-go run this as a credential plugin, with provideClusterInfo: true", execInfo, err)
	}
	request.server = server
	var config runtime.RawExtension
	switch credential := credential.(type) {
	case *clientauthenticationv1.ExecCredential:
		request.version, config = credential.APIVersion, credential.Spec.Cluster.Config
	case *clientauthenticationv1beta1.ExecCredential:
		request.version, config = credential.APIVersion, credential.Spec.Cluster.Config
	default:
		return request, fmt.Errorf("%s: %T is not in this version; use apiVersion %s", execInfo, credential,
			clientauthenticationv1.SchemeGroupVersion)
	}
	var extension struct {
		ClusterName string `json:"clusterName"`
	}
	if len(config.Raw) > 0 {
		if err := json.Unmarshal(config.Raw, &extension); err != nil {
			return request, fmt.Errorf("%s: spec.cluster.config: %w", execInfo, err)
		}
	}
	request.cluster = extension.ClusterName
	return request, nil
}

// credential is the user's own for the hub, or else that of an account on the cluster.
func (f *credentials) credential(ctx context.Context, request execRequest) (*clientauthenticationv1.ExecCredentialStatus, error) {
	hub, namespace, err := f.hubOfPod()
	if err != nil {
		return nil, err
	}
	if f.account != "" {
		return f.accountToken(ctx, hub, cmp.Or(f.namespace, namespace), request.cluster)
	}
	return ownCredentialFor(ctx, hub, request.server)
}

// accountToken is the token of the account on a cluster that the hub has copied next to the ClusterProfile.
func (f *credentials) accountToken(ctx context.Context, hub *hubapi.Hub, namespace, cluster string) (
	*clientauthenticationv1.ExecCredentialStatus, error,
) {
	if cluster == "" {
		return nil, fmt.Errorf("%s: spec.cluster.config.clusterName is missing; the extension client.authentication.k8s.io/exec of the "+
			"access provider in the ClusterProfile has it", execInfo)
	}
	if err := options.CheckClusterName(execInfo+": spec.cluster.config.clusterName", cluster); err != nil {
		return nil, err
	}
	secret, err := readSecret(ctx, hub, namespace, fleet.TokenCopyName(cluster, f.account))
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w\nThe hub copies the token there if ManagedServiceAccount %s in namespace %s has the label %s=%s, and there is a "+
			"ClusterProfile %s in namespace %s", err, f.account, cluster, fleet.LabelSyncToClusterProfile, fleet.LabelTrue, cluster, namespace)
	}
	if err != nil {
		return nil, err
	}
	if err := f.checkCopy(secret, cluster); err != nil {
		return nil, err
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 {
		return nil, fmt.Errorf("Secret %s/%s has no key %s: the hub writes it again if you delete the Secret", namespace, secret.Name,
			corev1.ServiceAccountTokenKey)
	}
	status := &clientauthenticationv1.ExecCredentialStatus{Token: string(token), ExpirationTimestamp: expiryOf(string(token))}
	if end := status.ExpirationTimestamp; end != nil && !f.Clock.Now().Before(end.Time) {
		return nil, fmt.Errorf("the token in Secret %s/%s has expired at %s: its agent renews it when cluster %s reaches the hub again",
			namespace, secret.Name, end.UTC().Format(time.RFC3339), cluster)
	}
	return status, nil
}

// checkCopy refuses a Secret that has the name of the copy of a token, and is not the one that the hub has made for the cluster.
func (f *credentials) checkCopy(secret *corev1.Secret, cluster string) error {
	switch of := fleet.TokenCopyCluster(secret); of {
	case cluster:
		return nil
	case "":
		return fmt.Errorf("Secret %s/%s is not the copy of the token of ManagedServiceAccount %s of cluster %s, which has the label %s=%s "+
			"and the owner ClusterProfile %s: delete it, and the hub makes the copy; or give the account another name", secret.Namespace,
			secret.Name, f.account, cluster, fleet.LabelSyncedFrom, secret.Name, cluster)
	default:
		return fmt.Errorf("Secret %s/%s is the copy of the token of ManagedServiceAccount %s of cluster %s, and not of %s of cluster %s: "+
			"give one of these accounts another name", secret.Namespace, secret.Name,
			strings.TrimPrefix(secret.Name, fleet.TokenCopyName(of, "")), of, f.account, cluster)
	}
}

// hubOfPod is the hub that the flags are about, or else that of the pod that this runs in, and the namespace there.
func (f *credentials) hubOfPod() (hub *hubapi.Hub, namespace string, err error) {
	if f.Kubeconfig == "" && f.Context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			hub, err := hubapi.New(config)
			if err != nil {
				return nil, "", err
			}
			hub.Source = hubapi.Source{Pod: true}
			return hub, program.Namespace(metav1.NamespaceDefault), nil
		}
	}
	config, _, err := f.Target().HubKubeconfig()
	if err != nil {
		return nil, "", err
	}
	hub, err = f.Hub()
	return hub, cmp.Or(config.Contexts[config.CurrentContext].Namespace, metav1.NamespaceDefault), err
}

// tokenAlgorithms are those with which API servers and OIDC issuers sign tokens.
var tokenAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// expiryOf is when a token ends, if it has that claim, or else nil. Clients request another one then.
func expiryOf(token string) *metav1.Time {
	parsed, err := jwt.ParseSigned(token, tokenAlgorithms)
	if err != nil {
		return nil
	}
	var claims jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil || claims.Expiry == nil {
		return nil
	}
	end := metav1.NewTime(claims.Expiry.Time())
	return &end
}

// readSecret reads a Secret of the hub.
func readSecret(ctx context.Context, hub *hubapi.Hub, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := hub.Client(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).Get(ctx, name, secret)
	return secret, hub.Explain("read Secret "+name+" of namespace "+namespace, err)
}
