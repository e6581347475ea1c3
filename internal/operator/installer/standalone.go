package installer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"
)

const standaloneChart = "capstan-hub"

// Names of what a standalone hub consists of.
const (
	// StandaloneHubName is the name of the Deployment, of the Service, and of most else.
	StandaloneHubName = "multicluster-controlplane"
	// StandaloneHubConfig is the Secret with the configuration of the hub.
	StandaloneHubConfig = "controlplane-config"

	standaloneAccount = StandaloneHubName + "-sa"
	standaloneVolume  = StandaloneHubName + "-pvc-volume"
	// configDir is where the files of that Secret are.
	configDir = "/controlplane_config"
)

// Files of the Secret with the configuration.
const (
	// KeyStandaloneCA and KeyStandaloneCAKey are the CA of the hub and its key, in PEM, where the hub does not make its own.
	KeyStandaloneCA    = "ca.crt"
	KeyStandaloneCAKey = "ca.key"
)

// StandaloneHub is a hub in one pod, or in several on an external etcd, as the chart capstan-hub installs it.
type StandaloneHub struct {
	// Namespace is where the hub is.
	Namespace string
	// Values are those of the chart; those that are missing are the chart's own.
	Values map[string]any
	// CA and CAKey, in PEM, are those that the value apiserver.generateCA made before, and stay: all agents trust them. Without them, new
	// ones are made.
	CA, CAKey []byte
	// AssignsUsers says that the cluster gives pods users and groups itself, as OpenShift does.
	AssignsUsers bool
	// KnowsSleep says that containers can sleep before they stop, as from Kubernetes 1.30 on.
	KnowsSleep bool
}

// Objects returns what installs the hub, in the order to apply it in. Its namespace is not among it.
func (h StandaloneHub) Objects() ([]*unstructured.Unstructured, error) {
	s := &standalone{StandaloneHub: h}
	if err := decodeValues(standaloneChart, h.Values, &s.v); err != nil {
		return nil, err
	}
	if err := s.v.check(); err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", standaloneChart, err)
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	deployment, err := s.deployment()
	if err != nil {
		return nil, err
	}
	objects := append(s.rights(), config, s.volume(), s.service(), s.route(), s.disruptionBudget(), s.serviceMonitor(), deployment)
	return toUnstructured(objects), nil
}

// Optional are the objects that a hub has with some values and not with others, but for its volume, which has all that it knows.
func (h StandaloneHub) Optional() []*unstructured.Unstructured {
	s := &standalone{StandaloneHub: h}
	s.v.Route.Enabled, s.v.PodDisruptionBudget.Enabled, s.v.Metrics.ServiceMonitor.Enabled = true, true, true
	return toUnstructured([]object{s.route(), s.disruptionBudget(), s.serviceMonitor(), s.authenticationReader()})
}

// standalone builds the objects of a standalone hub.
type standalone struct {
	StandaloneHub
	v standaloneValues
}

func (s *standalone) metadata(name string) object {
	return object{"name": name, "namespace": s.Namespace, "labels": s.labels()}
}

func (s *standalone) labels() object { return labels(StandaloneHubName, standaloneChart) }

func (s *standalone) selector() object { return selector(StandaloneHubName) }

// clusterName is the name of what is not in the namespace of the hub.
func (s *standalone) clusterName() string {
	return "open-cluster-management:" + StandaloneHubName + ":" + s.Namespace
}

func (s *standalone) subjects() []any {
	return []any{object{"kind": "ServiceAccount", "name": standaloneAccount, "namespace": s.Namespace}}
}

const rbac = "rbac.authorization.k8s.io"

// rights are the service account of the hub, and what it may do in the cluster that it runs in.
func (s *standalone) rights() []object {
	rule := func(group, resource string, names []any, verbs ...any) any {
		rule := object{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
		setFields(rule, object{"resourceNames": names})
		return rule
	}
	kubeconfigs := []any{StandaloneHubName + "-kubeconfig", StandaloneHubName + "-svc-kubeconfig"}
	// The hub finds out how it is exposed, and publishes the kubeconfigs of its administrator.
	role := object{"apiVersion": rbac + "/v1", "kind": "Role", "metadata": s.metadata(StandaloneHubName), "rules": []any{
		rule("", "services", []any{StandaloneHubName}, "get"),
		rule("route.openshift.io", "routes", []any{StandaloneHubName}, "get"),
		rule("", "secrets", nil, "create"),
		rule("", "secrets", kubeconfigs, "get", "update"),
	}}
	everywhere := []any{}
	if s.v.EnableDelegatingAuthentication { // to have tokens reviewed
		everywhere = append(everywhere, rule("authentication.k8s.io", "tokenreviews", nil, "create"))
	}
	if s.v.EnableSelfManagement { // what the agent in the hub may do in this cluster, as any agent: whatever works say
		everywhere = append(everywhere, rule("*", "*", nil, "*"), object{"nonResourceURLs": []any{"*"}, "verbs": []any{"*"}})
	}
	clusterScoped := func() object { return object{"name": s.clusterName(), "labels": s.labels()} }
	objects := []object{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": s.metadata(standaloneAccount)},
		role,
		s.binding("RoleBinding", s.metadata(StandaloneHubName), "Role", StandaloneHubName),
		{"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": clusterScoped(), "rules": everywhere},
		s.binding("ClusterRoleBinding", clusterScoped(), "ClusterRole", s.clusterName()),
	}
	if s.v.EnableDelegatingAuthentication {
		objects = append(objects, s.authenticationReader())
	}
	return objects
}

// authenticationReader lets the hub read the CA of the certificates of the users of this cluster.
func (s *standalone) authenticationReader() object {
	metadata := object{"name": s.clusterName(), "namespace": "kube-system", "labels": s.labels()}
	return s.binding("RoleBinding", metadata, "Role", "extension-apiserver-authentication-reader")
}

func (s *standalone) binding(kind string, metadata object, roleKind, role string) object {
	return object{"apiVersion": rbac + "/v1", "kind": kind, "metadata": metadata, "subjects": s.subjects(),
		"roleRef": object{"apiGroup": rbac, "kind": roleKind, "name": role}}
}

// config is the configuration of the hub, with the files that it names.
func (s *standalone) config() (object, error) {
	files := map[string]string{}
	ca, key, err := s.authority()
	if err != nil {
		return nil, err
	}
	apiServer := object{"port": s.v.APIServer.ExternalPort}
	setFields(apiServer, object{"externalHostname": s.host()})
	if ca != "" {
		files[KeyStandaloneCA], files[KeyStandaloneCAKey] = ca, key
		apiServer["caFile"], apiServer["caKeyFile"] = configDir+"/"+KeyStandaloneCA, configDir+"/"+KeyStandaloneCAKey
	}
	etcd := object{"mode": s.v.Etcd.Mode}
	if s.v.Etcd.Mode == etcdExternal {
		etcd["servers"], etcd["prefix"] = texts(s.v.Etcd.Servers), "/"+s.Namespace
		for _, file := range s.v.etcdFiles() {
			if file.content != "" {
				name := "etcd-" + file.value + ".pem"
				files[name], etcd[file.field] = file.content, configDir+"/"+name
			}
		}
	}
	content, err := yaml.Marshal(object{"dataDirectory": "/.ocm", "apiserver": apiServer, "etcd": etcd})
	if err != nil {
		return nil, err
	}
	files["ocmconfig.yaml"] = strings.TrimSuffix(string(content), "\n")
	return secret(s.metadata(StandaloneHubConfig), "Opaque", files), nil
}

// authority is the CA with its key, in PEM; empty if the hub makes its own.
func (s *standalone) authority() (ca, key string, err error) {
	given := s.v.APIServer
	switch {
	case given.CA != "" || !given.GenerateCA:
		return given.CA, given.CAKey, nil
	case len(s.CA) > 0 && len(s.CAKey) > 0:
		return string(s.CA), string(s.CAKey), nil
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key for the CA of the hub: %w", err)
	}
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: StandaloneHubName}, signer)
	if err != nil {
		return "", "", fmt.Errorf("make the CA of the hub: %w", err)
	}
	caPEM, caErr := certutil.EncodeCertificates(certificate)
	keyPEM, keyErr := keyutil.MarshalPrivateKeyToPEM(signer)
	return string(caPEM), string(keyPEM), errors.Join(caErr, keyErr)
}

// host is the name by which agents reach the hub; empty if the hub finds it out.
func (s *standalone) host() string {
	switch {
	case s.v.APIServer.ExternalHostname != "":
		return s.v.APIServer.ExternalHostname
	case s.v.Route.Enabled || s.v.LoadBalancer.Enabled:
		return ""
	}
	return s.serviceHost()
}

func (s *standalone) serviceHost() string { return StandaloneHubName + "." + s.Namespace + ".svc" }

// volume is where the keys and the storage of the hub are, if that is not elsewhere.
func (s *standalone) volume() object {
	if s.v.hasReplicas() || s.v.Storage.Type != storageClaim {
		return nil
	}
	spec := object{
		"accessModes": []any{"ReadWriteOnce"},
		"resources":   object{"requests": object{"storage": s.v.PVC.StorageCapacity}},
	}
	setFields(spec, object{"storageClassName": s.v.PVC.StorageClassName, "selector": s.v.PVC.Selector})
	return object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": s.metadata(standaloneVolume), "spec": spec}
}

func (s *standalone) service() object {
	port := object{"name": "https", "port": int64(443), "targetPort": int64(9443)}
	spec := object{"type": "ClusterIP", "selector": object{"app": StandaloneHubName}, "ports": []any{port}}
	switch {
	case s.v.LoadBalancer.Enabled:
		spec["type"] = "LoadBalancer"
		setFields(spec, object{"loadBalancerIP": s.v.LoadBalancer.IP})
	case s.v.NodePort.Enabled:
		spec["type"] = "NodePort"
	}
	if s.v.NodePort.Enabled {
		port["nodePort"] = s.v.NodePort.Port
	}
	metadata := s.metadata(StandaloneHubName)
	setFields(metadata, object{"annotations": s.v.ServiceAnnotations})
	return object{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
}

func (s *standalone) route() object {
	if !s.v.Route.Enabled {
		return nil
	}
	spec := object{
		"port": object{"targetPort": "https"},
		// Agents prove who they are by certificates, so the hub itself ends TLS.
		"tls":            object{"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"},
		"to":             object{"kind": "Service", "name": StandaloneHubName, "weight": int64(100)},
		"wildcardPolicy": "None",
	}
	setFields(spec, object{"host": s.v.APIServer.ExternalHostname})
	return object{"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": s.metadata(StandaloneHubName), "spec": spec}
}

// disruptionBudget has one of several replicas evicted at a time, and the only one of a hub, if that is requested, not at all.
func (s *standalone) disruptionBudget() object {
	unavailable := int64(0)
	switch {
	case s.v.hasReplicas():
		unavailable = 1
	case !s.v.PodDisruptionBudget.Enabled:
		return nil
	}
	return object{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": s.metadata(StandaloneHubName),
		"spec": object{"maxUnavailable": unavailable, "selector": s.selector()}}
}

func (s *standalone) serviceMonitor() object {
	monitor := s.v.Metrics.ServiceMonitor
	if !monitor.Enabled {
		return nil
	}
	metadata := s.metadata(StandaloneHubName)
	MergeValues(metadata, object{"labels": monitor.Labels})
	endpoint := object{
		"port": "https", "scheme": "https", "path": "/metrics", "interval": monitor.Interval,
		// The name of the job by which the alerts select the hub.
		"relabelings":   []any{object{"targetLabel": "job", "replacement": "capstan-hub"}},
		"authorization": object{"credentials": object{"name": monitor.TokenSecret.Name, "key": monitor.TokenSecret.Key}},
		"tlsConfig": object{
			"serverName": s.serviceHost(),
			// The hub writes the Secret, with its present certificate authorities.
			"ca": object{"secret": object{"name": StandaloneHubName + "-kubeconfig", "key": "ca.crt"}},
		},
	}
	return object{"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata,
		"spec": object{"selector": s.selector(), "endpoints": []any{endpoint}}}
}

func (s *standalone) deployment() (object, error) {
	// The hub reads its configuration when it starts, and finds out how it is exposed.
	content, err := json.Marshal(s.v.configuration)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	annotations := object{"checksum/config": hex.EncodeToString(sum[:])}
	MergeValues(annotations, s.v.PodAnnotations)
	labels := object{
		"app": StandaloneHubName, "app.kubernetes.io/name": StandaloneHubName, "app.kubernetes.io/instance": StandaloneHubName,
	}
	MergeValues(labels, s.v.PodLabels)
	strategy := object{"type": "Recreate"} // its volume belongs to one process
	if s.v.hasReplicas() {
		strategy = object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": int64(0), "maxSurge": int64(1)}}
	}
	return object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": s.metadata(StandaloneHubName),
		"spec": object{
			"replicas": s.v.Replicas,
			"strategy": strategy,
			"selector": s.selector(),
			"template": object{"metadata": object{"annotations": annotations, "labels": labels}, "spec": s.pod()},
		},
	}, nil
}

func (s *standalone) pod() object {
	security := s.v.PodSecurityContext
	if s.AssignsUsers {
		delete(security, "runAsUser")
		delete(security, "fsGroup")
	}
	pod := object{
		"serviceAccountName": standaloneAccount,
		"securityContext":    security,
		// What it acknowledged is stored; it needs time to end requests and to close its storage.
		"terminationGracePeriodSeconds": int64(60),
		"containers":                    []any{s.container()},
		"volumes": []any{
			// The hub runs as a user of its own, whose group is fsGroup.
			object{"name": "config", "secret": object{"secretName": StandaloneHubConfig, "defaultMode": int64(0o440)}},
			s.data(),
			object{"name": "tmp", "emptyDir": object{}},
		},
	}
	setFields(pod, object{
		"priorityClassName": s.v.PriorityClassName, "imagePullSecrets": named(s.v.ImagePullSecrets), "nodeSelector": s.v.NodeSelector,
		"tolerations": s.v.Tolerations, "affinity": s.affinity(),
	})
	return pod
}

// named are references to Secrets, some of which are given by their name alone.
func named(secrets []any) []any {
	var references []any
	for _, given := range secrets {
		if name, isName := given.(string); isName {
			given = object{"name": name}
		}
		references = append(references, given)
	}
	return references
}

// data is the volume of the keys of the hub, and of its storage.
func (s *standalone) data() object {
	volume := object{"name": "data"}
	switch {
	case s.v.hasReplicas(): // a copy of the keys that are in etcd
		volume["emptyDir"] = object{"medium": "Memory", "sizeLimit": "16Mi"}
	case s.v.Storage.Type == storageEmptyDir:
		volume["emptyDir"] = object{}
	case s.v.Storage.Type == storageHostPath:
		volume["hostPath"] = object{"path": s.v.Storage.HostPath, "type": "Directory"}
	default:
		volume["persistentVolumeClaim"] = object{"claimName": standaloneVolume}
	}
	return volume
}

// affinity has several replicas prefer nodes of their own, unless the values have another.
func (s *standalone) affinity() object {
	if len(s.v.Affinity) > 0 || !s.v.hasReplicas() {
		return s.v.Affinity
	}
	return object{"podAntiAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []any{object{
		"weight": int64(100), "podAffinityTerm": object{"topologyKey": "kubernetes.io/hostname", "labelSelector": s.selector()},
	}}}}
}

func (s *standalone) container() object {
	probe := func(path string, period, failures int64) object {
		return object{"httpGet": object{"path": path, "scheme": "HTTPS", "port": "https"}, "periodSeconds": period,
			"failureThreshold": failures, "timeoutSeconds": int64(15)}
	}
	image := s.v.Image
	if image == "" {
		image = "ghcr.io/capstan-io/capstan-hub:" + appVersion(standaloneChart)
	}
	container := object{
		"name":            "controlplane",
		"image":           image,
		"imagePullPolicy": s.v.ImagePullPolicy,
		"args":            s.args(),
		"ports":           []any{object{"name": "https", "containerPort": int64(9443)}},
		"securityContext": s.v.SecurityContext,
		// Five minutes to start on a busy node, or with a storage that has to be read again.
		"startupProbe":   probe("/livez", 5, 60),
		"livenessProbe":  probe("/livez", 10, 8),
		"readinessProbe": probe("/readyz", 1, 3),
		"resources":      s.v.Resources,
		"volumeMounts": []any{
			object{"name": "config", "mountPath": configDir, "readOnly": true},
			object{"name": "data", "mountPath": "/.ocm"},
			object{"name": "tmp", "mountPath": "/tmp"},
		},
	}
	if s.v.Etcd.Mode != etcdExternal {
		container["env"] = []any{variable("ETCD_SNAPSHOT_COUNT", strconv.FormatInt(s.v.Etcd.SnapshotCount, 10))}
	}
	if s.v.hasReplicas() && s.KnowsSleep { // until the Service sends nobody here any more
		container["lifecycle"] = object{"preStop": object{"sleep": object{"seconds": int64(5)}}}
	}
	return container
}

// args are those of the hub.
func (s *standalone) args() []any {
	args := []any{"server", "--controlplane-config-dir=" + configDir}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag+"="+value)
		}
	}
	add("--feature-gates", s.v.Features)
	add("--auto-approved-csr-users", s.v.AutoApprovalBootstrapUsers)
	if s.v.EnableSelfManagement {
		args = append(args, "--self-management")
		add("--self-management-cluster-name", s.v.SelfManagementClusterName)
	}
	if s.v.EnableDelegatingAuthentication {
		args = append(args, "--delegating-authentication")
	}
	add("--tls-min-version", s.v.TLS.MinVersion)
	add("--tls-cipher-suites", strings.Join(s.v.TLS.CipherSuites, ","))
	return append(args, s.v.ExtraArgs...)
}
