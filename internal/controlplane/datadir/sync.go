package datadir

import (
	"errors"
	"os"
)

// Sync has what was created, renamed or removed in a folder survive a power failure. The content of files has to be synced apart.
func Sync(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
