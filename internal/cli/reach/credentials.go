package reach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

const credentialsLong = `Print the token of a managed service account, as a credential plugin of client-go.

Clients that reach clusters by ClusterProfiles run it, with the access provider open-cluster-management: they say in
KUBERNETES_EXEC_INFO for which cluster. The token is in the Secret CLUSTER-NAME next to the ClusterProfile, where the hub copies
it for ManagedServiceAccounts with the label authentication.open-cluster-management.io/sync-to-clusterprofile=true. In a pod, it
is read from the cluster of the pod and its namespace; otherwise, and with --kubeconfig, from the hub of the kubeconfig and the
namespace of its context.`

// credentials is one run of "capstan credentials": the flags say where the token is.
type credentials struct {
	*options.Global
	account   string
	namespace string
}

// NewCredentialsCommand is "capstan credentials".
func NewCredentialsCommand(global *options.Global) *cobra.Command {
	f := &credentials{Global: global}
	command := &cobra.Command{
		Use:     "credentials --managed-serviceaccount NAME",
		Aliases: []string{"credential"},
		Short:   "Print the token of a managed service account, as a credential plugin",
		Long:    credentialsLong,
		Example: "  # In the file of access providers of a client\n" +
			`  {"providers": [{"name": "open-cluster-management", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1",` + "\n" +
			`    "command": "capstan", "args": ["credentials", "--managed-serviceaccount", "reader"], "provideClusterInfo": true}}]}`,
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&f.account, "managed-serviceaccount", "", "name of the ManagedServiceAccount")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the ClusterProfile and the Secret (default: of the pod or the context)")
	options.Complete(command, "managed-serviceaccount", cobra.NoFileCompletions)
	options.Complete(command, "namespace", cobra.NoFileCompletions)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if f.account == "" {
			return errors.New("--managed-serviceaccount: name the ManagedServiceAccount whose token is wanted")
		}
		version, cluster, err := execCluster()
		if err != nil {
			return err
		}
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		return f.printCredential(ctx, version, cluster)
	}
	return command
}

// execCluster reads for which cluster a client requests a credential, and in which version.
func execCluster() (version, cluster string, err error) {
	const from = "KUBERNETES_EXEC_INFO"
	credential, _, err := exec.LoadExecCredentialFromEnv()
	if err != nil {
		return "", "", fmt.Errorf("%s: %w; have client-go run this as a credential plugin, with provideClusterInfo: true", from, err)
	}
	var config runtime.RawExtension
	switch credential := credential.(type) {
	case *clientauthenticationv1.ExecCredential:
		version, config = credential.APIVersion, credential.Spec.Cluster.Config
	case *clientauthenticationv1beta1.ExecCredential:
		version, config = credential.APIVersion, credential.Spec.Cluster.Config
	default:
		return "", "", fmt.Errorf("%s: %T is not in this version; use apiVersion %s", from, credential, clientauthenticationv1.SchemeGroupVersion)
	}
	var extension struct {
		ClusterName string `json:"clusterName"`
	}
	if len(config.Raw) > 0 {
		if err := json.Unmarshal(config.Raw, &extension); err != nil {
			return "", "", fmt.Errorf("%s: spec.cluster.config: %w", from, err)
		}
	}
	if extension.ClusterName == "" {
		return "", "", fmt.Errorf("%s: spec.cluster.config.clusterName is missing; the extension client.authentication.k8s.io/exec of the "+
			"access provider in the ClusterProfile has it", from)
	}
	return version, extension.ClusterName, options.CheckClusterName(from+": spec.cluster.config.clusterName", extension.ClusterName)
}

// printCredential prints the token of an account on a cluster.
func (f *credentials) printCredential(ctx context.Context, version, cluster string) error {
	hub, namespace, err := f.hubOfPod()
	if err != nil {
		return err
	}
	namespace = cmp.Or(f.namespace, namespace)
	secret, err := readSecret(ctx, hub, namespace, cluster+"-"+f.account)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w\nThe hub copies the token there if ManagedServiceAccount %s in namespace %s has the label %s=%s, and there is a "+
			"ClusterProfile %s in namespace %s", err, f.account, cluster, fleet.LabelSyncToClusterProfile, fleet.LabelTrue, cluster, namespace)
	}
	if err != nil {
		return err
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 {
		return fmt.Errorf("Secret %s/%s has no key %s: it is not the copy of a token", namespace, secret.Name, corev1.ServiceAccountTokenKey)
	}
	status := clientauthenticationv1.ExecCredentialStatus{Token: string(token), ExpirationTimestamp: expiryOf(string(token))}
	if end := status.ExpirationTimestamp; end != nil && !f.Clock.Now().Before(end.Time) {
		return fmt.Errorf("the token in Secret %s/%s has expired at %s: its agent renews it when cluster %s reaches the hub again",
			namespace, secret.Name, end.UTC().Format(time.RFC3339), cluster)
	}
	return json.NewEncoder(f.Out).Encode(clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ExecCredential"}, Status: &status,
	})
}

// hubOfPod is the hub that the flags are about, or else that of the pod that this runs in, and the namespace there.
func (f *credentials) hubOfPod() (hub *hubapi.Hub, namespace string, err error) {
	if f.Kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			hub, err := hubapi.New(config)
			return hub, program.Namespace(metav1.NamespaceDefault), err
		}
	}
	config, _, err := f.Target().HubKubeconfig()
	if err != nil {
		return nil, "", err
	}
	hub, err = f.Hub()
	return hub, cmp.Or(config.Contexts[config.CurrentContext].Namespace, metav1.NamespaceDefault), err
}

// tokenAlgorithms are those with which API servers sign tokens of service accounts.
var tokenAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// expiryOf is when a token of a service account ends, if it has that claim, or else nil. Clients request another one then.
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
