package template

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Variables that every template has.
const (
	// VariableHubKubeconfig is the file with the access to the hub, if the template registers for that.
	VariableHubKubeconfig = "HUB_KUBECONFIG"
	// VariableClusterName is the name of the managed cluster. No configuration overrides it.
	VariableClusterName = "CLUSTER_NAME"
	// VariableInstallNamespace is the namespace of the agent. No configuration overrides it.
	VariableInstallNamespace = "INSTALL_NAMESPACE"

	// What the certificate and the key of a custom signer are called starts with these, and ends with the name of the signer:
	// CLIENT_CERT_EXAMPLE_COM_HELLO for example.com/hello. They are an extension.
	variableClientCertPrefix = "CLIENT_CERT_"
	variableClientKeyPrefix  = "CLIENT_KEY_"
)

// variables of a template on a cluster.
type variables struct {
	// of is the value of each.
	of map[string]string
	// preset are those that the pods get as environment, in the order in which they do.
	preset []string
}

func variablesOf(in Input) variables {
	v := variables{of: map[string]string{}}
	preset := func(name, value string) {
		v.of[name] = value
		v.preset = append(v.preset, name)
	}
	if registersForHub(in.Template) {
		preset(VariableHubKubeconfig, hubKubeconfigPath+"/kubeconfig")
	}
	for _, signer := range signersOf(in.Template) {
		preset(ClientCertVariable(signer), certificatePath(signer)+"/tls.crt")
		preset(ClientKeyVariable(signer), certificatePath(signer)+"/tls.key")
	}
	if in.Config != nil {
		for _, variable := range in.Config.CustomizedVariables {
			v.of[variable.Name] = variable.Value
		}
	}
	preset(VariableClusterName, in.Cluster)
	preset(VariableInstallNamespace, in.Namespace)
	return v
}

// ClientCertVariable is the variable whose value is the file with the certificate of a custom signer.
func ClientCertVariable(signer string) string {
	return variableClientCertPrefix + fleet.SignerVariable(signer)
}

// ClientKeyVariable is the variable whose value is the file with the key of that certificate.
func ClientKeyVariable(signer string) string {
	return variableClientKeyPrefix + fleet.SignerVariable(signer)
}

// reference is {{NAME}}, with a valid name of a variable. Anything else in braces, such as {{ .Values.name }}, stays: it may be a
// template of the add-on itself.
var reference = regexp.MustCompile(`\{\{\s*([a-zA-Z_][_a-zA-Z0-9]*)\s*\}\}`)

// substitution replaces variables in decoded JSON, keys included. So no value, whatever is in it, changes more than the
// string that it occurs in. What is replaced is not expanded again.
type substitution struct {
	values  map[string]string
	unknown map[string]bool
	// left are the bytes of values that may still be put in, and exceeded is why there are none.
	left     *budget.Meter
	exceeded error
}

// newSubstitution is for a template of so many bytes: a variable takes few of them each time, and its value may take many.
func newSubstitution(values map[string]string, template int) *substitution {
	return &substitution{
		values: values, unknown: map[string]bool{},
		left: budget.NewMeter("with the values of its variables, the template has too many bytes", budget.Result(template)),
	}
}

// in returns a copy of the value. An error starts with the path in it.
func (s *substitution) in(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return s.inText(value), nil
	case []any:
		result := make([]any, len(value))
		for i := range value {
			element, err := s.in(value[i])
			if err != nil {
				return nil, fmt.Errorf("[%d]%w", i, err)
			}
			result[i] = element
		}
		return result, nil
	case map[string]any:
		return s.inObject(value)
	default:
		return value, nil
	}
}

func (s *substitution) inObject(object map[string]any) (any, error) {
	result := make(map[string]any, len(object))
	was := make(map[string]string, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name := s.inText(key)
		if other, taken := was[name]; taken {
			return nil, fmt.Errorf(": with their variables, the keys %q and %q are both %q", other, key, name)
		}
		element, err := s.in(object[key])
		if err != nil {
			return nil, fmt.Errorf(".%s%w", key, err)
		}
		result[name], was[name] = element, key
	}
	return result, nil
}

func (s *substitution) inText(text string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		name := strings.TrimSpace(match[2 : len(match)-2])
		value, known := s.values[name]
		if !known {
			s.unknown[name] = true
		}
		if err := s.left.Spend(len(value)); err != nil {
			s.exceeded = err
			return ""
		}
		return value
	})
}

func (s *substitution) unknownNames() []string {
	return slices.Sorted(maps.Keys(s.unknown))
}

// registersForHub reports whether the agent gets access to the API server of the hub.
func registersForHub(template *addonv1beta1.AddOnTemplateSpec) bool {
	return slices.ContainsFunc(template.Registration, func(r addonv1beta1.RegistrationSpec) bool {
		return r.Type == addonv1beta1.RegistrationTypeKubeClient
	})
}

// signersOf are the custom signers that the agent gets certificates of, each once, in the order of the template.
func signersOf(template *addonv1beta1.AddOnTemplateSpec) []string {
	var signers []string
	for _, r := range template.Registration {
		if r.Type == addonv1beta1.RegistrationTypeCustomSigner && r.CustomSigner != nil && !slices.Contains(signers, r.CustomSigner.SignerName) {
			signers = append(signers, r.CustomSigner.SignerName)
		}
	}
	return signers
}
