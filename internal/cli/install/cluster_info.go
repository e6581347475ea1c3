package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
)

// clusterInfo is the ConfigMap in which clusters publish how they are reached.
var clusterInfo = installation.Reference{
	GroupVersionKind: installation.KindConfigMap, Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo,
}

// clusterInfoReaders give everybody the right to read that ConfigMap, as installers of Kubernetes do: who joins compares the hash of the
// certificate authority in it with the one of the join command, before sending a token.
var clusterInfoReaders = []installation.Reference{
	{GroupVersionKind: installation.KindRole, Namespace: clusterInfo.Namespace, Name: "open-cluster-management:cluster-info"},
	{GroupVersionKind: installation.KindRoleBinding, Namespace: clusterInfo.Namespace, Name: "open-cluster-management:cluster-info"},
}

// annotationCreatedBy marks what init has created outside of the namespaces of the hub, for clean.
const annotationCreatedBy = "capstan.io/created-by"

// access is how clusters that join reach the hub.
type access struct {
	server string
	// ca is what they verify it with, in PEM; without it, the certificates of their machines have to do.
	ca []byte
	// own says that ca is that of the cluster, and not of the kubeconfig.
	own bool
}

// publish makes sure that the cluster publishes how it is reached, and that clusters can join by that.
func (i *initialization) publish(ctx context.Context, cluster *Cluster) error {
	info, err := cluster.Get(ctx, clusterInfo)
	if err != nil {
		return err
	}
	clusteradms := madeByClusteradm(info) // which does not take it away again, and lets nobody read it
	if info == nil || clusteradms {
		err = i.publishKubeconfig(ctx, cluster, clusteradms)
	} else {
		err = i.checkPublished(ctx, cluster, info)
	}
	if err != nil {
		return err
	}
	return i.allowReading(ctx, cluster)
}

// publishKubeconfig publishes how the kubeconfig leads to the cluster, in place of what clusteradm has published, if it has.
func (i *initialization) publishKubeconfig(ctx context.Context, cluster *Cluster, replace bool) error {
	i.correction = correctionOfOwn
	by := accessBy(ctx, cluster)
	if err := i.checkAccess(ctx, cluster, by); err != nil {
		return fmt.Errorf("clusters could not join at %s, the address in the kubeconfig: %w\n%s", by.server, err, adviceToPublish(replace))
	}
	if replace {
		if _, err := cluster.Delete(ctx, clusterInfo); err != nil {
			return err
		}
	}
	from := ""
	if by.own {
		from = ", and with the certificate authority that the cluster gives its pods, as the kubeconfig has none"
	}
	i.Note("Warning: the cluster has no ConfigMap %s/%s of its own, which says how it is reached. It is created from the kubeconfig, with "+
		"the address %s%s.", clusterInfo.Namespace, clusterInfo.Name, by.server, from)
	i.warnAboutAddress(by.server)
	return createClusterInfo(ctx, cluster, by)
}

// checkPublished makes sure that clusters can join by what the cluster publishes.
func (i *initialization) checkPublished(ctx context.Context, cluster *Cluster, info *unstructured.Unstructured) error {
	i.correction = correctionOfOthers
	if info.GetAnnotations()[annotationCreatedBy] != "" {
		i.correction = correctionOfOwn
	}
	by, err := accessIn(info)
	if err != nil && !i.force {
		return err
	}
	by.server = cmp.Or(by.server, cluster.Server())
	if err := i.checkAccess(ctx, cluster, by); err != nil {
		return fmt.Errorf("clusters could not join with what ConfigMap %s/%s publishes, at %s: %w\n%s",
			clusterInfo.Namespace, clusterInfo.Name, by.server, err, i.correction)
	}
	i.warnAboutAddress(by.server)
	return nil
}

// adviceToPublish is what helps where clusters cannot join by what the kubeconfig says; with replace, clusteradm has published another.
func adviceToPublish(replace bool) string {
	if replace {
		return toWriteKubeconfig + toDelete + toCreate
	}
	return toWriteKubeconfig + toCreate
}

// The parts of that advice.
var (
	toWriteKubeconfig = "Run this command with a kubeconfig whose server has a name that the certificate is for, and which has the " +
		"certificate authority of the server. Or publish both, in a kubeconfig FILE without a user, as everybody may read it:\n" +
		"  kubectl config set-cluster hub --kubeconfig=FILE --server=https://NAME:PORT --certificate-authority=CA --embed-certs\n"
	toDelete = fmt.Sprintf("  kubectl --namespace %s delete configmap %s\n", clusterInfo.Namespace, clusterInfo.Name)
	toCreate = fmt.Sprintf("  kubectl --namespace %s create configmap %s --from-file=%s=FILE",
		clusterInfo.Namespace, clusterInfo.Name, bootstrapapi.KubeConfigKey)
)

// The corrections of a ConfigMap by which clusters cannot join: of one that init has created, and of one that others have.
var (
	correctionOfOwn = fmt.Sprintf("This command has created the ConfigMap. Delete it, and run this command with a kubeconfig whose server "+
		"has a name that the certificate is for, and which has the certificate authority of the server:\n"+
		"  kubectl --namespace %s delete configmap %s", clusterInfo.Namespace, clusterInfo.Name)
	correctionOfOthers = fmt.Sprintf("Correct server and certificate-authority-data in the ConfigMap; or delete it if nothing else uses it, "+
		"and this command creates it from your kubeconfig:\n  kubectl --namespace %s edit configmap %s",
		clusterInfo.Namespace, clusterInfo.Name)
)

// checkAccess fails if no cluster can verify the hub, wherever it is. One that cannot be reached from here may be reached from elsewhere.
func (i *initialization) checkAccess(ctx context.Context, cluster *Cluster, by access) error {
	if i.force {
		return nil
	}
	err := verifyAccess(ctx, cluster, by)
	if errors.Is(err, hubapi.ErrUntrusted) {
		return err
	}
	i.untried = err
	return nil
}

func verifyAccess(ctx context.Context, cluster *Cluster, by access) error {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	return cluster.Hub().VerifyAt(ctx, by.server, by.ca)
}

// accessBy is how the kubeconfig leads to the cluster. One without a certificate authority verifies the server with those of this machine,
// or not at all: clusters then verify it with that of the cluster, if that is the server's.
func accessBy(ctx context.Context, cluster *Cluster) access {
	by := access{server: cluster.Server(), ca: cluster.Hub().CA}
	if len(by.ca) > 0 {
		return by
	}
	own := access{server: by.server, ca: cluster.Hub().OwnCA(ctx), own: true}
	if len(own.ca) > 0 && verifyAccess(ctx, cluster, own) == nil {
		return own
	}
	return by
}

// accessIn is what the ConfigMap cluster-info says.
func accessIn(info *unstructured.Unstructured) (access, error) {
	content, _, _ := unstructured.NestedString(info.Object, "data", bootstrapapi.KubeConfigKey)
	config, err := clientcmd.Load([]byte(content))
	if err != nil || strings.TrimSpace(content) == "" || len(config.Clusters) == 0 {
		return access{}, fmt.Errorf("ConfigMap %s/%s of the cluster holds no kubeconfig, so clusters that join cannot find the hub: "+
			"delete it, and this command creates it from your kubeconfig", clusterInfo.Namespace, clusterInfo.Name)
	}
	cluster := hubapi.FirstCluster(config)
	return access{server: cluster.Server, ca: cluster.CertificateAuthorityData}, nil
}

// madeByClusteradm reports whether clusteradm has made an object: it signs what it writes.
func madeByClusteradm(object *unstructured.Unstructured) bool {
	return object != nil && slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == "clusteradm"
	})
}

func createClusterInfo(ctx context.Context, cluster *Cluster, by access) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: by.server, CertificateAuthorityData: by.ca}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	info := published(clusterInfo, map[string]any{
		"immutable": true,
		"data":      map[string]any{bootstrapapi.KubeConfigKey: string(kubeconfig)},
	})
	return cluster.Apply(ctx, []*unstructured.Unstructured{info}, func(installation.Reference, installation.Change) {})
}

// published is an object by which init publishes how the cluster is reached.
func published(name installation.Reference, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(name.GroupVersionKind)
	object.SetNamespace(name.Namespace)
	object.SetName(name.Name)
	object.SetAnnotations(map[string]string{annotationCreatedBy: "capstan init"})
	return object
}

// warnAboutAddress warns about addresses that agents in other clusters may not reach.
func (i *initialization) warnAboutAddress(server string) {
	parsed, err := url.Parse(server)
	if err != nil {
		return
	}
	switch address := net.ParseIP(parsed.Hostname()); {
	case address == nil:
		i.Note("Warning: the address of the hub, %s, has the host name %s. If clusters that join cannot resolve it, maybe you should set "+
			"HostAlias: spec.hubApiServerHostAlias of the Klusterlet.", server, parsed.Hostname())
	case address.IsLoopback():
		i.Note("Warning: the address of the hub, %s, leads to the machine that uses it. Clusters elsewhere cannot join there.", server)
	}
}

// allowReading gives everybody the right to read how the cluster is reached, unless everybody has it.
func (i *initialization) allowReading(ctx context.Context, cluster *Cluster) error {
	shown, err := showsClusterInfo(ctx, cluster.Hub())
	if i.shown = shown; err != nil || shown {
		return err
	}
	role := published(clusterInfoReaders[0], map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "resourceNames": []any{clusterInfo.Name}, "verbs": []any{"get"}}}})
	group := func(name string) any {
		return map[string]any{"apiGroup": installation.KindRole.Group, "kind": "Group", "name": name}
	}
	binding := published(clusterInfoReaders[1], map[string]any{
		"roleRef":  map[string]any{"apiGroup": installation.KindRole.Group, "kind": "Role", "name": clusterInfoReaders[0].Name},
		"subjects": []any{group("system:unauthenticated"), group("system:authenticated")},
	})
	noReport := func(installation.Reference, installation.Change) {}
	if err := cluster.Apply(ctx, []*unstructured.Unstructured{role, binding}, noReport); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	if i.shown, err = awaitClusterInfo(ctx, cluster.Hub()); !i.shown {
		i.Note("Warning: the cluster shows nothing to who has no credential (%v), so clusters that join cannot compare its certificate authority with the "+
			"hash in the join command: give them that in a file, and add --ca-file FILE to the command.", err)
	}
	return nil
}

// showsClusterInfo reports whether everybody may read the ConfigMap cluster-info.
func showsClusterInfo(ctx context.Context, hub *hubapi.Hub) (bool, error) {
	err := readAnonymously(ctx, hub)
	if err != nil && hubapi.Withheld(err) {
		return false, nil
	}
	return err == nil, hub.Explain("read what the cluster shows to everybody", err)
}

func readAnonymously(ctx context.Context, hub *hubapi.Hub) error {
	anonymous, err := hubapi.New(rest.AnonymousClientConfig(hub.Config()))
	if err != nil {
		return err
	}
	configMaps := anonymous.Client(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(metav1.NamespacePublic)
	return configMaps.Get(ctx, bootstrapapi.ConfigMapClusterInfo, &corev1.ConfigMap{})
}

// awaitClusterInfo waits until everybody may read the ConfigMap cluster-info: rights that were just given count a moment later. If it is
// not in time, the error is why.
func awaitClusterInfo(ctx context.Context, hub *hubapi.Hub) (shown bool, err error) {
	const interval = 200 * time.Millisecond
	_ = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		if now := readAnonymously(ctx, hub); ctx.Err() == nil {
			err = now
		}
		return err == nil, nil
	})
	return err == nil, err
}
