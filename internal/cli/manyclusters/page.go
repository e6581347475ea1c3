package manyclusters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Page is the response of a cluster, or a part of it.
type Page struct {
	Cluster  string
	Resource Resource
	// Columns and Rows are those of Tables.
	Columns []Column
	Rows    [][]string
	// Objects are those of the form of that name, with the annotation that names their cluster.
	Objects []map[string]any
	// Names are those of the form of that name.
	Names []string

	size    int    // in bytes
	version string // of the collection
}

// WithoutContent is what Watch continues from.
func (p *Page) WithoutContent() Page {
	return Page{Cluster: p.Cluster, Resource: p.Resource, Columns: p.Columns, version: p.version}
}

// Column of a table.
type Column struct {
	Name string
	// Wide says that it is of interest to few.
	Wide bool
}

// response is a table, a list, or an object.
type response struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   metav1.ListMeta `json:"metadata"`

	Columns bounded[metav1.TableColumnDefinition] `json:"columnDefinitions"`
	Rows    bounded[tableRow]                     `json:"rows"`
	Items   bounded[json.RawMessage]              `json:"items"`
}

// bounded is a list of the answer of a cluster, with clusterapi.MaxElements at most.
type bounded[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (b *bounded[T]) UnmarshalJSON(content []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return json.Unmarshal(content, (*[]T)(b)) // null, or an error
	}
	*b = bounded[T]{}
	for decoder.More() {
		if len(*b) == clusterapi.MaxElements {
			return clusterapi.ErrTooManyElements
		}
		var element T
		if err := decoder.Decode(&element); err != nil {
			return err
		}
		*b = append(*b, element)
	}
	return nil
}

type tableRow struct {
	Cells  []any `json:"cells"`
	Object named `json:"object"`
}

// named is what is read of an object that is shown in a table.
type named struct {
	Metadata struct {
		Namespace         string      `json:"namespace"`
		Name              string      `json:"name"`
		CreationTimestamp metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
}

// decode reads the body of a response.
func decode(cluster string, resource Resource, q Query, body []byte) (page Page, next string, err error) {
	r := &response{}
	if err := unmarshal(body, r); err != nil {
		return Page{}, "", fmt.Errorf("read the answer: %w", err)
	}
	page = Page{Cluster: cluster, Resource: resource, size: len(body), version: r.Metadata.ResourceVersion}
	next = r.Metadata.Continue
	if r.Kind == "Table" {
		page.addTable(r, q.showsNamespace(resource))
		return page, next, nil
	}
	items := r.Items
	if q.Name != "" {
		items, next = []json.RawMessage{body}, ""
	}
	switch q.Form {
	case Objects:
		err = page.addObjects(items, r)
	case Names:
		err = page.addNames(items)
	case Tables:
		err = page.addBareTable(items, q.showsNamespace(resource))
	}
	return page, next, err
}

// unmarshal keeps numbers as they are written.
func unmarshal(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	return decoder.Decode(into)
}

func (p *Page) addTable(r *response, withNamespace bool) {
	p.addColumns(withNamespace)
	for _, column := range r.Columns {
		p.Columns = append(p.Columns, Column{Name: column.Name, Wide: column.Priority > 0})
	}
	for i := range r.Rows {
		row := make([]string, 0, len(p.Columns))
		if withNamespace {
			row = append(row, r.Rows[i].Object.Metadata.Namespace)
		}
		for _, cell := range r.Rows[i].Cells {
			row = append(row, cellText(cell))
		}
		p.Rows = append(p.Rows, row)
	}
}

func (p *Page) addColumns(withNamespace bool) {
	if withNamespace {
		p.Columns = append(p.Columns, Column{Name: "Namespace"})
	}
}

func cellText(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// addBareTable is for servers that make no tables.
func (p *Page) addBareTable(items []json.RawMessage, withNamespace bool) error {
	p.addColumns(withNamespace)
	p.Columns = append(p.Columns, Column{Name: "Name"}, Column{Name: "Age"})
	for _, item := range items {
		object := &named{}
		if err := json.Unmarshal(item, object); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		var row []string
		if withNamespace {
			row = append(row, object.Metadata.Namespace)
		}
		p.Rows = append(p.Rows, append(row, object.Metadata.Name, duration.HumanDuration(time.Since(object.Metadata.CreationTimestamp.Time))))
	}
	return nil
}

// addObjects says of which kind and cluster each is.
func (p *Page) addObjects(items []json.RawMessage, list *response) error {
	for _, item := range items {
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(item, &object.Object); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if object.GetKind() == "" { // lists say it once
			object.SetAPIVersion(list.APIVersion)
			object.SetKind(p.Resource.Kind)
		}
		object.SetManagedFields(nil) // as kubectl does: nobody reads them
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[fleet.AnnotationClusterName] = p.Cluster
		object.SetAnnotations(annotations)
		p.Objects = append(p.Objects, object.Object)
	}
	return nil
}

func (p *Page) addNames(items []json.RawMessage) error {
	for _, item := range items {
		object := &named{}
		if err := json.Unmarshal(item, object); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		p.Names = append(p.Names, object.Metadata.Name)
	}
	return nil
}
