package override

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capstan-io/capstan/internal/budget"
)

func (a *Assignment) validate(path *field.Path) (errs field.ErrorList) {
	if !strings.HasPrefix(a.Path, "/") {
		errs = append(errs, field.Invalid(path.Child("path"), a.Path, "write a JSON pointer such as /spec/replicas"))
	}
	sources := 0
	for _, there := range []bool{len(a.Value) > 0, a.ClusterName, a.Label != "", a.Claim != "", len(a.ByCluster) > 0} {
		if there {
			sources++
		}
	}
	if sources != 1 {
		errs = append(errs, field.Invalid(path, a.Path, "say where the value is from by exactly one of value, clusterName, label, claim and byCluster"))
	}
	switch a.Type {
	case "", String, Integer, Number, Boolean, JSON:
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), a.Type, []Type{String, Integer, Number, Boolean, JSON}))
	}
	if a.Type != "" && a.Label == "" && a.Claim == "" {
		errs = append(errs, field.Forbidden(path.Child("type"), "a type is for labels and claims: other values have their own"))
	}
	return errs
}

// apply makes what is missing on the way to the field, and the field.
func (a *Assignment) apply(raw []byte, cluster Cluster) ([]byte, error) {
	element, err := a.namesElement(raw)
	if err != nil {
		return nil, err
	}
	value, err := a.valueFor(cluster)
	if err != nil {
		return nil, err
	}
	operation := "add"
	if element {
		operation = "replace" // to add would push it aside
	}
	content, err := json.Marshal([]map[string]any{{"op": operation, "path": a.Path, "value": value}})
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(content)
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.EnsurePathExistsOnAdd = true
	return patch.ApplyWithOptions(raw, options)
}

// namesElement tells whether the path leads to an element of a list that is there. It fails on an element further on than the one after the
// last: those in between would have to be made up, and there may be any number of them.
func (a *Assignment) namesElement(raw []byte) (bool, error) {
	var at any
	if json.Unmarshal(raw, &at) != nil {
		return false, nil
	}
	steps := strings.Split(a.Path, "/")[1:]
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i, step := range steps {
		if here, ok := at.(map[string]any); ok {
			at = here[unescape.Replace(step)]
			continue
		}
		list, isList := at.([]any)
		n, err := strconv.ParseUint(step, 10, 64)
		switch {
		case err != nil || !isList && at != nil:
			return false, nil //nolint:nilerr // the patch fails, or makes an object
		case n > uint64(len(list)):
			return false, &budget.Exceeded{
				What:  fmt.Sprintf("%s is element %d of a list of %d", "/"+strings.Join(steps[:i+1], "/"), n, len(list)),
				Limit: fmt.Sprintf("%d, the one after the last", len(list)),
			}
		case n == uint64(len(list)):
			at = nil // it is made
		case i == len(steps)-1:
			return true, nil
		default:
			at = list[n]
		}
	}
	return false, nil
}

func (a *Assignment) valueFor(cluster Cluster) (json.RawMessage, error) {
	text, found, what := "", false, ""
	switch {
	case len(a.Value) > 0:
		return a.Value, nil
	case a.ClusterName:
		return json.Marshal(cluster.Name)
	case len(a.ByCluster) > 0:
		if value, found := a.ByCluster[cluster.Name]; found {
			return value, nil
		}
		what = "entry in byCluster"
	case a.Label != "":
		text, found = cluster.Labels[a.Label]
		what = "label " + a.Label
	default:
		text, found = cluster.Claims[a.Claim]
		what = "claim " + a.Claim
	}
	switch {
	case found:
		value, err := a.Type.read(text)
		if err != nil {
			return nil, fmt.Errorf("the %s of cluster %s is %q: %w", what, cluster.Name, text, err)
		}
		return value, nil
	case len(a.Default) > 0:
		return a.Default, nil
	default:
		return nil, fmt.Errorf("cluster %s has no %s: give it one, or a default to the override", cluster.Name, what)
	}
}

// read makes a JSON value of text.
func (t Type) read(text string) (json.RawMessage, error) {
	switch t {
	case Integer:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("that is no integer")
		}
		return json.Marshal(n)
	case Number:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errors.New("that is no number")
		}
		value, err := json.Marshal(n)
		if err != nil {
			return nil, errors.New("that is no number that JSON knows")
		}
		return value, nil
	case Boolean:
		switch text {
		case "true", "false":
			return json.RawMessage(text), nil
		}
		return nil, errors.New("that is neither true nor false")
	case JSON:
		if !json.Valid([]byte(text)) {
			return nil, errors.New("that is no JSON")
		}
		return json.RawMessage(text), nil
	default:
		return json.Marshal(text)
	}
}
