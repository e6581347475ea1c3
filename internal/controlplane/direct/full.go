package direct

import (
	"context"
	"errors"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explaining says to clients of the API what to do when the etcd takes no more writes.
type explaining struct{ clientv3.KV }

// Put implements clientv3.KV.
func (k explaining) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	response, err := k.KV.Put(ctx, key, value, options...)
	return response, explain(err)
}

// Txn implements clientv3.KV.
func (k explaining) Txn(ctx context.Context) clientv3.Txn { return explainingTxn{k.KV.Txn(ctx)} }

type explainingTxn struct{ clientv3.Txn }

// If implements clientv3.Txn.
func (t explainingTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	return explainingTxn{t.Txn.If(conditions...)}
}

// Then implements clientv3.Txn.
func (t explainingTxn) Then(operations ...clientv3.Op) clientv3.Txn {
	return explainingTxn{t.Txn.Then(operations...)}
}

// Else implements clientv3.Txn.
func (t explainingTxn) Else(operations ...clientv3.Op) clientv3.Txn {
	return explainingTxn{t.Txn.Else(operations...)}
}

// Commit implements clientv3.Txn.
func (t explainingTxn) Commit() (*clientv3.TxnResponse, error) {
	response, err := t.Txn.Commit()
	return response, explain(err)
}

func explain(err error) error {
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		return err
	}
	return errFull()
}

func errFull() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage",
		Message: "the storage of the hub is full: it takes deletions, and nothing that is new or becomes larger. Delete what is not needed, and the hub " +
			"takes all writes again within minutes; or have its operator start it with a larger --embedded-etcd-quota-bytes",
	}}
}
