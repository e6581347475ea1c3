package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// newStorage is the database of an etcd with a tree of pages.
func newStorage(t *testing.T, options *bbolt.Options) []byte {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, options)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var content bytes.Buffer
	err = errors.Join(db.Update(putRevisions), db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&content)
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return content.Bytes()
}

func putRevisions(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucket(schema.Key.Name())
	if err != nil {
		return err
	}
	for i := range int64(1000) {
		value, err := proto.Marshal(&mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/secrets/a/%d", i), Value: make([]byte, 100)})
		if err != nil {
			return err
		}
		if err := bucket.Put(mvcc.RevToBytes(mvcc.Revision{Main: i + 1}, mvcc.NewRevBytes()), value); err != nil {
			return err
		}
	}
	return nil
}

func elementsOf(page []byte) int { return int(binary.NativeEndian.Uint16(page[10:])) }

// keyAt is an element from its key on, whose offset is at some bytes from the start of the element.
func keyAt(page []byte, element, offset int) []byte {
	start := headerSize + element*elementSize
	return page[start+int(binary.NativeEndian.Uint32(page[start+offset:])):]
}

// pagesOf are the pages of a kind with two elements or more.
func pagesOf(content []byte, kind byte) (pages [][]byte) {
	for page := range slices.Chunk(content, os.Getpagesize()) {
		if page[8] == kind && elementsOf(page) > 1 {
			pages = append(pages, page)
		}
	}
	return pages
}

// A damaged storage is found, whatever bbolt makes of it, and its check leaves no file.
func TestDamagedStorage(t *testing.T) {
	asEtcd := &bbolt.Options{NoFreelistSync: true}
	for name, test := range map[string]struct {
		options *bbolt.Options
		kind    byte
		damage  func(page []byte)
	}{
		"leaf pages are zeros":       {asEtcd, leafPage, func(page []byte) { clear(page) }},
		"branch pages are zeros":     {asEtcd, branchPage, func(page []byte) { clear(page) }},
		"leaf pages are others":      {asEtcd, leafPage, func(page []byte) { page[0]++ }},
		"leaf pages are of no type":  {asEtcd, leafPage, func(page []byte) { page[8] = 0x40 }},
		"pages are beyond the file":  {asEtcd, branchPage, func(page []byte) { binary.NativeEndian.PutUint64(page[headerSize+8:], 1<<20) }},
		"keys are beyond the file":   {asEtcd, leafPage, func(page []byte) { binary.NativeEndian.PutUint32(page[headerSize+4:], 1<<30) }},
		"pages go on in others":      {asEtcd, leafPage, func(page []byte) { binary.NativeEndian.PutUint32(page[12:], 1) }},
		"pages go on too far":        {asEtcd, leafPage, func(page []byte) { binary.NativeEndian.PutUint32(page[12:], 1<<30) }},
		"pages have too much":        {asEtcd, leafPage, func(page []byte) { binary.NativeEndian.PutUint16(page[10:], 1<<16-1) }},
		"branches lead nowhere":      {asEtcd, branchPage, func(page []byte) { binary.NativeEndian.PutUint16(page[10:], 0) }},
		"branches lead to one page":  {asEtcd, branchPage, func(page []byte) { copy(page[headerSize+8:][:8], page[headerSize+elementSize+8:]) }},
		"values are buckets":         {asEtcd, leafPage, func(page []byte) { page[headerSize] |= bucketFlag }},
		"keys are empty":             {asEtcd, leafPage, func(page []byte) { binary.NativeEndian.PutUint32(page[headerSize+8:], 0) }},
		"keys are out of order":      {asEtcd, leafPage, func(page []byte) { keyAt(page, 0, 4)[0] = 0x7f }},
		"revisions are no objects":   {asEtcd, leafPage, func(page []byte) { copy(keyAt(page, 1, 4)[17:], bytes.Repeat([]byte{0xff}, 20)) }},
		"revisions have other names": {asEtcd, leafPage, func(page []byte) { keyAt(page, 1, 4)[8] = '-' }},
		"branches lead elsewhere": {asEtcd, branchPage, func(page []byte) {
			for element := 1; element < elementsOf(page); element++ {
				keyAt(page, element, 0)[0] = 0x7f
			}
		}},
		// There are several problems: another page is neither free nor in use then.
		"a page in use is free": {&bbolt.Options{}, freelistPage, func(page []byte) {
			binary.NativeEndian.PutUint64(page[headerSize+8:], 6)
		}},
		"a free page is not": {&bbolt.Options{}, freelistPage, func(page []byte) {
			binary.NativeEndian.PutUint16(page[10:], binary.NativeEndian.Uint16(page[10:])-1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, content, temporary := newSource(t), newStorage(t, test.options), t.TempDir()
			t.Setenv("TMPDIR", temporary)
			s.Snapshot = func() Snapshot { return database(content) }
			_, contents, err := Check(t.Context(), bytes.NewReader(written(t, s)), "", nil)
			if err != nil || contents.Objects["secrets"] != 1000 {
				t.Fatalf("before it is damaged, there are %+v, %v", contents, err)
			}
			damaged := pagesOf(content, test.kind)
			if len(damaged) == 0 {
				t.Fatal("the storage has no such page")
			}
			for _, page := range damaged {
				test.damage(page)
			}
			_, _, err = Check(t.Context(), bytes.NewReader(written(t, s)), "", nil)
			if want := "read the storage of the backup: it is damaged: "; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
}

// A backup says whether its hub holds its works, as the hub does that is restored from it.
func TestWorksHeld(t *testing.T) {
	t.Parallel()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const held = "/registry/configmaps/open-cluster-management-hub/works-held"
	put := func(key string) error {
		_, err := server.Client().Put(t.Context(), key, "content")
		return err
	}
	for _, step := range []struct {
		name   string
		change func() error
		want   bool
	}{
		{"ConfigMap of another hub", func() error { return put("/other" + held) }, false},
		{"ConfigMap of a longer name", func() error { return put(held + "-before") }, false},
		{"the ConfigMap", func() error { return put(held) }, true},
		{"the ConfigMap, changed", func() error { return put(held) }, true},
		{"no ConfigMap any more", func() error {
			_, err := server.Client().Delete(t.Context(), held)
			return err
		}, false},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		s := newSource(t)
		s.Snapshot = func() Snapshot { return server.Snapshot() }
		_, contents, err := Check(t.Context(), bytes.NewReader(written(t, s)), "", nil)
		if err != nil || contents.WorksHeld != step.want {
			t.Errorf("%s: want held: %t; got %+v, %v", step.name, step.want, contents, err)
		}
	}
}

// A check that is interrupted ends among the pages, of which a large storage has many.
func TestInterruptedCheckOfPages(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, newStorage(t, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storage, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for end, test := range map[error]context.Context{nil: t.Context(), context.Canceled: ctx} {
		err := db.View(func(tx *bbolt.Tx) error { return checkPages(test, storage, tx) })
		if !errors.Is(err, end) {
			t.Errorf("it ends with %v, want %v", err, end)
		}
	}
}
