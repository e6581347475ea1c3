package installer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// standaloneValues are those of the chart capstan-hub.
type standaloneValues struct {
	Image            string `json:"image"`
	ImagePullPolicy  string `json:"imagePullPolicy"`
	ImagePullSecrets []any  `json:"imagePullSecrets"`
	Replicas         int64  `json:"replicas"`

	Features                       string `json:"features"`
	AutoApprovalBootstrapUsers     string `json:"autoApprovalBootstrapUsers"`
	EnableSelfManagement           bool   `json:"enableSelfManagement"`
	SelfManagementClusterName      string `json:"selfManagementClusterName"`
	EnableDelegatingAuthentication bool   `json:"enableDelegatingAuthentication"`

	configuration
	Storage struct {
		Type     string `json:"type"`
		HostPath string `json:"hostPath"`
	} `json:"storage"`
	PVC struct {
		StorageCapacity  string         `json:"storageCapacity"`
		StorageClassName string         `json:"storageClassName"`
		Selector         map[string]any `json:"selector"`
	} `json:"pvc"`

	NodePort struct {
		Enabled bool  `json:"enabled"`
		Port    int64 `json:"port"`
	} `json:"nodeport"`
	ServiceAnnotations map[string]any `json:"serviceAnnotations"`

	TLS struct {
		MinVersion   string   `json:"minVersion"`
		CipherSuites []string `json:"cipherSuites"`
	} `json:"tls"`
	ExtraArgs []any `json:"extraArgs"`
	Metrics   struct {
		ServiceMonitor struct {
			Enabled     bool           `json:"enabled"`
			Interval    string         `json:"interval"`
			Labels      map[string]any `json:"labels"`
			TokenSecret struct {
				Name string `json:"name"`
				Key  string `json:"key"`
			} `json:"tokenSecret"`
		} `json:"serviceMonitor"`
	} `json:"metrics"`

	PodDisruptionBudget podDisruptionBudget `json:"podDisruptionBudget"`
	PriorityClassName   string              `json:"priorityClassName"`
	Resources           map[string]any      `json:"resources"`
	NodeSelector        map[string]any      `json:"nodeSelector"`
	Tolerations         []any               `json:"tolerations"`
	Affinity            map[string]any      `json:"affinity"`
	PodLabels           map[string]any      `json:"podLabels"`
	PodAnnotations      map[string]any      `json:"podAnnotations"`
	PodSecurityContext  map[string]any      `json:"podSecurityContext"`
	SecurityContext     map[string]any      `json:"securityContext"`
}

// configuration are the values that the hub reads when it starts, and those by which it finds out how agents reach it. Their fields are in
// alphabetical order, in which the chart hashes them.
type configuration struct {
	APIServer struct {
		CA               string `json:"ca"`
		CAKey            string `json:"cakey"`
		ExternalHostname string `json:"externalHostname"`
		ExternalPort     int64  `json:"externalPort"`
		GenerateCA       bool   `json:"generateCA"`
	} `json:"apiserver"`
	Etcd struct {
		CA            string   `json:"ca"`
		Cert          string   `json:"cert"`
		CertKey       string   `json:"certkey"`
		Mode          string   `json:"mode"`
		Servers       []string `json:"servers"`
		SnapshotCount int64    `json:"snapshotCount"`
	} `json:"etcd"`
	LoadBalancer struct {
		Enabled bool   `json:"enabled"`
		IP      string `json:"ip"`
	} `json:"loadbalancer"`
	Route struct {
		Enabled bool `json:"enabled"`
	} `json:"route"`
}

const (
	etcdExternal    = "external"
	storageEmptyDir = "emptyDir"
	storageHostPath = "hostPath"
	storageClaim    = "persistentVolumeClaim"
)

// check finds values that contradict each other, as the chart does.
func (v *standaloneValues) check() error {
	switch {
	case v.hasReplicas() && v.Etcd.Mode != etcdExternal:
		return fmt.Errorf("replicas: %d replicas need an etcd that they share: set etcd.mode external with etcd.servers, or replicas to 1", v.Replicas)
	case fleet.ReservedClusterName(v.SelfManagementClusterName):
		return fmt.Errorf("selfManagementClusterName: %s is a name that the hub has for itself; choose another name", v.SelfManagementClusterName)
	case v.Storage.Type == storageHostPath && v.Storage.HostPath == "":
		return errors.New("storage.hostPath is required with storage.type hostPath: a folder of the node that the user 65532 may write")
	case v.Storage.HostPath != "" && v.Storage.Type != storageHostPath:
		return fmt.Errorf("storage.hostPath has no effect with storage.type %s: set storage.type hostPath, or leave it out", v.Storage.Type)
	}
	if exposed := v.exposed(); len(exposed) > 1 {
		return fmt.Errorf("%s: enable at most one of them", strings.Join(exposed, ", "))
	}
	switch {
	case v.NodePort.Enabled && v.APIServer.ExternalHostname == "":
		return errors.New("apiserver.externalHostname is required with nodeport.enabled: the name or address of the nodes for agents")
	case v.APIServer.CA != "" && v.APIServer.CAKey == "":
		return errors.New("apiserver.cakey is required with apiserver.ca: the hub signs certificates with it")
	case v.APIServer.CAKey != "" && v.APIServer.CA == "":
		return errors.New("apiserver.ca is required with apiserver.cakey")
	case v.Etcd.Mode == etcdExternal:
		return v.checkEtcd()
	}
	return nil
}

func (v *standaloneValues) checkEtcd() error {
	if len(v.Etcd.Servers) == 0 {
		return errors.New("etcd.servers is required with etcd.mode external: the URLs of the etcd")
	}
	secure := slices.ContainsFunc(v.Etcd.Servers, func(server string) bool { return strings.Contains(server, "https://") })
	for _, file := range v.etcdFiles() {
		if secure && file.content == "" {
			return fmt.Errorf("etcd.%s is required with https:// in etcd.servers", file.value)
		}
	}
	return nil
}

func (v *standaloneValues) exposed() (by []string) {
	for _, method := range []struct {
		name    string
		enabled bool
	}{{"route", v.Route.Enabled}, {"loadbalancer", v.LoadBalancer.Enabled}, {"nodeport", v.NodePort.Enabled}} {
		if method.enabled {
			by = append(by, method.name)
		}
	}
	return by
}

// hasReplicas reports whether there are replicas that share an etcd.
func (v *standaloneValues) hasReplicas() bool { return v.Replicas > 1 }

// etcdFile is what the hub reaches an external etcd with.
type etcdFile struct{ value, field, content string }

func (v *standaloneValues) etcdFiles() []etcdFile {
	return []etcdFile{{"ca", "caFile", v.Etcd.CA}, {"cert", "certFile", v.Etcd.Cert}, {"certkey", "keyFile", v.Etcd.CertKey}}
}
