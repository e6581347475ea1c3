package fleetsim

import (
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// call is a request for objects of a kind.
type call struct {
	*http.Request
	info *request.RequestInfo
	kind kind
	body []byte
}

func (r *call) key() key {
	return key{r.kind.GroupVersionResource, types.NamespacedName{Namespace: r.namespace(), Name: r.info.Name}}
}

// namespace of the request. The path of a Namespace looks as if it was in itself.
func (r *call) namespace() string {
	if !r.kind.namespaced {
		return ""
	}
	return r.info.Namespace
}

func (r *call) notFound() error {
	return apierrors.NewNotFound(r.kind.GroupResource(), r.info.Name)
}

// answer does what the request asks for.
func (c *Cluster) answer(w http.ResponseWriter, r *call) {
	var o *unstructured.Unstructured
	var err error
	code := http.StatusOK
	switch r.info.Verb {
	case "list":
		c.list(w, r)
		return
	case "watch":
		c.watch(w, r)
		return
	case "get":
		if o = c.store.get(r.key()); o == nil {
			err = r.notFound()
		}
	case "create":
		o, err = c.create(r)
		code = http.StatusCreated
	case "update":
		o, err = c.update(r)
	case "patch":
		o, err = c.patch(r)
	case "delete":
		o, err = c.delete(r)
	default:
		err = apierrors.NewMethodNotSupported(r.kind.GroupResource(), r.info.Verb)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, code, r.represent(o).Object)
}

func (c *Cluster) create(r *call) (*unstructured.Unstructured, error) {
	o, err := decode(r.body)
	if err != nil {
		return nil, err
	}
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	r.info.Name = o.GetName()
	return c.write(r, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if old != nil {
			return nil, apierrors.NewAlreadyExists(r.kind.GroupResource(), o.GetName())
		}
		return o, nil
	})
}

func (c *Cluster) update(r *call) (*unstructured.Unstructured, error) {
	o, err := decode(r.body)
	if err != nil {
		return nil, err
	}
	return c.write(r, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if old == nil {
			return nil, r.notFound()
		}
		return o, nil
	})
}

// patch knows merge patches, and takes an apply for one that may create: there are no field managers.
func (c *Cluster) patch(r *call) (*unstructured.Unstructured, error) {
	apply := types.PatchType(r.Header.Get("Content-Type")) == types.ApplyYAMLPatchType
	if !apply && types.PatchType(r.Header.Get("Content-Type")) != types.MergePatchType {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", r.kind.GroupResource(), r.info.Name,
			"a simulated cluster takes merge patches and applies, not "+r.Header.Get("Content-Type"), 0, true)
	}
	change, err := yaml.YAMLToJSON(r.body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c.write(r, func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if old == nil && apply {
			return decode(change)
		}
		if old == nil {
			return nil, r.notFound()
		}
		before, err := old.MarshalJSON()
		if err != nil {
			return nil, err
		}
		after, err := jsonpatch.MergePatch(before, change)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return decode(after)
	})
}

func (c *Cluster) delete(r *call) (*unstructured.Unstructured, error) {
	options := metav1.DeleteOptions{}
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	var last *unstructured.Unstructured
	_, err := c.store.write(r.key(), func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if old == nil {
			return nil, r.notFound()
		}
		p := options.Preconditions
		if p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
			return nil, apierrors.NewConflict(r.kind.GroupResource(), old.GetName(), errOther)
		}
		last = old
		if len(old.GetFinalizers()) == 0 {
			return nil, nil
		}
		next := old.DeepCopy()
		if next.GetDeletionTimestamp() == nil {
			next.SetDeletionTimestamp(new(metav1.Now()))
		}
		return next, nil
	})
	if err == nil && r.kind == definitions {
		err = c.serve()
	}
	return last, err
}

func decode(body []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return o, nil
}
