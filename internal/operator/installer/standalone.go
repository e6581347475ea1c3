package installer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const standaloneChart = "capstan-hub"

// Names of what a standalone hub consists of.
const (
	// StandaloneHubName is the name of the Deployment, of the Service, and of most else.
	StandaloneHubName = "multicluster-controlplane"
	// StandaloneHubConfig is the Secret with the configuration of the hub.
	StandaloneHubConfig = "controlplane-config"
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

// Objects returns what installs the hub, in the order to apply it in. Its namespace is not among it. Errors do not quote credentials that
// are among the values.
func (h StandaloneHub) Objects() ([]*unstructured.Unstructured, error) {
	values, err := plain(standaloneChart, h.Values)
	if err != nil {
		return nil, err
	}
	config, err := h.configBefore(values)
	if err != nil {
		return nil, err
	}
	return release{chart: standaloneChart, name: StandaloneHubName, namespace: h.Namespace, values: values,
		capabilities: h.capabilities(), existing: config}.objects()
}

// Optional are the objects that a hub has with some values and not with others, but for its volume, which has all that it knows.
func (h StandaloneHub) Optional() ([]*unstructured.Unstructured, error) {
	enabled := map[string]any{"enabled": true}
	most, err := StandaloneHub{Namespace: h.Namespace, Values: map[string]any{
		"enableDelegatingAuthentication": true, "route": enabled, "podDisruptionBudget": enabled,
		"metrics": map[string]any{"serviceMonitor": enabled},
	}}.Objects()
	if err != nil {
		return nil, err
	}
	least, err := StandaloneHub{Namespace: h.Namespace}.Objects()
	return slices.DeleteFunc(most, func(object *unstructured.Unstructured) bool {
		return slices.ContainsFunc(least, func(other *unstructured.Unstructured) bool { return isSame(object, other) })
	}), err
}

func isSame(a, b *unstructured.Unstructured) bool {
	return a.GroupVersionKind() == b.GroupVersionKind() && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// capabilities are those of the cluster that the chart asks for.
func (h StandaloneHub) capabilities() *common.Capabilities {
	capabilities := common.DefaultCapabilities.Copy()
	if h.AssignsUsers {
		capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), "security.openshift.io/v1")
	}
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.29.0", Major: "1", Minor: "29"}
	if h.KnowsSleep {
		capabilities.KubeVersion = common.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	}
	return capabilities
}

// configBefore is the Secret in which the chart finds the CA that the values want to be generated: the one that was made before, or a new
// one. It is nil if they want none.
func (h StandaloneHub) configBefore(values map[string]any) (*unstructured.Unstructured, error) {
	given, _ := values["apiserver"].(map[string]any)
	if generate, _ := given["generateCA"].(bool); !generate || !isEmpty(given["ca"]) {
		return nil, nil
	}
	ca, key := h.CA, h.CAKey
	if len(ca) == 0 || len(key) == 0 {
		var err error
		if ca, key, err = newCA(); err != nil {
			return nil, err
		}
	}
	encode := base64.StdEncoding.EncodeToString
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": h.Namespace, "name": StandaloneHubConfig},
		"data": map[string]any{KeyStandaloneCA: encode(ca), KeyStandaloneCAKey: encode(key)},
	}}, nil
}

// newCA makes a CA with its key, in PEM.
func newCA() (ca, key []byte, err error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for the CA of the hub: %w", err)
	}
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: StandaloneHubName}, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("make the CA of the hub: %w", err)
	}
	ca, caErr := certutil.EncodeCertificates(certificate)
	key, keyErr := keyutil.MarshalPrivateKeyToPEM(signer)
	return ca, key, errors.Join(caErr, keyErr)
}
