package override

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capstan-io/capstan/internal/machinery/text"
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
		errs = append(errs, field.Invalid(path, a.Path,
			"say where the value is from by exactly one of value, clusterName, label, claim and byCluster"))
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

// complete reads what is used for each cluster.
func (a *Assignment) complete() (err error) {
	a.pointer = pointerOf(a.Path)
	if a.fixed, err = readMaybe(a.Value); err != nil {
		return err
	}
	if a.otherwise, err = readMaybe(a.Default); err != nil {
		return err
	}
	a.each = make(map[string]value, len(a.ByCluster))
	for cluster, text := range a.ByCluster {
		if a.each[cluster], err = readMaybe(text); err != nil {
			return err
		}
	}
	return nil
}

// readMaybe reads a value of an override. What YAML has as null comes as nothing.
func readMaybe(text []byte) (value, error) {
	if len(text) == 0 {
		return null, nil
	}
	return read(text)
}

// valueFor is the value for a cluster, and how many bytes were read for it.
func (a *Assignment) valueFor(cluster Cluster) (v value, bytes int, err error) {
	source, found, what := "", false, ""
	switch {
	case len(a.Value) > 0:
		return a.fixed, 0, nil
	case a.ClusterName:
		v, err := String.read(cluster.Name)
		return v, len(cluster.Name), err
	case len(a.ByCluster) > 0:
		if v, found := a.each[cluster.Name]; found {
			return v, len(v.text), nil
		}
		what = "entry in byCluster"
	case a.Label != "":
		source, found = cluster.Labels[a.Label]
		what = "label " + a.Label
	default:
		source, found = cluster.Claims[a.Claim]
		what = "claim " + a.Claim
	}
	switch {
	case found:
		if v, err = a.Type.read(source); err != nil {
			err = fmt.Errorf("the %s of cluster %s is %s: %w", what, cluster.Name, text.Quote(source), err)
		}
		return v, len(source), err
	case len(a.Default) > 0:
		return a.otherwise, 0, nil
	default:
		return v, 0, fmt.Errorf("cluster %s has no %s: give it one, or a default to the override", cluster.Name, what)
	}
}

// read makes a JSON value of text.
func (t Type) read(text string) (value, error) {
	written, err := t.write(text)
	if err != nil {
		return value{}, err
	}
	return read(written)
}

// write makes JSON of text.
func (t Type) write(text string) ([]byte, error) {
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
			return []byte(text), nil
		}
		return nil, errors.New("that is neither true nor false")
	case JSON:
		var v any // an API server writes the same value the same way
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, errors.New("that is no JSON")
		}
		return json.Marshal(v)
	default:
		return json.Marshal(text)
	}
}
