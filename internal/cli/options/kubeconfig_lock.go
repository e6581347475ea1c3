package options

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A kubeconfig is locked for the time of a write, unless a command was killed meanwhile.
const (
	lockAttempts = 100
	lockRetry    = 50 * time.Millisecond
)

// ErrKubeconfigChanged is that of an attempt to change a kubeconfig which another command has changed since it was read.
var ErrKubeconfigChanged = errors.New("other commands keep changing the kubeconfig: try again once they have ended")

// LockKubeconfig keeps other commands, also those of "kubectl config", from changing a kubeconfig until it is unlocked. As with client-go,
// the lock is a file beside it. Of a link, it is beside the file that is replaced, and beside the link, too, where others may lock it.
func (g *Global) LockKubeconfig(ctx context.Context, file OutputFile) (unlock func(), err error) {
	target, err := file.target()
	if err != nil {
		return nil, err
	}
	unlockTarget, err := g.lockBeside(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Flag, err)
	}
	if _, err := os.Readlink(file.Path); err != nil {
		return unlockTarget, nil //nolint:nilerr // it is no link
	}
	unlockLink, err := g.lockBeside(ctx, file.Path)
	if errors.As(err, new(*fs.PathError)) {
		return unlockTarget, nil // in a folder that cannot be written to, others cannot lock it either
	}
	if err != nil {
		unlockTarget()
		return nil, fmt.Errorf("%s: %w", file.Flag, err)
	}
	return func() { unlockLink(); unlockTarget() }, nil
}

// lockBeside makes the file that locks another.
func (g *Global) lockBeside(ctx context.Context, file string) (unlock func(), err error) {
	lock := LockOf(file)
	err = g.AwaitKubeconfig(ctx, func() error {
		created, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			_ = created.Close() // nothing was written
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(lock) }, nil
}

// LockOf is the file that is there while a command changes a kubeconfig.
func LockOf(kubeconfig string) string { return kubeconfig + ".lock" }

// AwaitKubeconfig tries to lock a kubeconfig, or to change it by client-go, again and again for some seconds while another command changes
// it.
func (g *Global) AwaitKubeconfig(ctx context.Context, try func() error) error {
	for attempt := 1; ; attempt++ {
		err := try()
		locked := errors.Is(err, fs.ErrExist)
		if !locked && !errors.Is(err, ErrKubeconfigChanged) {
			return err
		}
		if attempt == lockAttempts {
			var lock *fs.PathError
			if locked && errors.As(err, &lock) {
				return fmt.Errorf("%s says that another command is changing the kubeconfig: try again, or delete this file if there is no such command",
					lock.Path)
			}
			return err
		}
		g.Clock.Sleep(lockRetry)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
