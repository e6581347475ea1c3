package addon

import "errors"

// ErrNotYet is for what an add-on cannot say of a cluster now and will be able to say without anybody's help: a
// configuration is not in the state that the cluster is to have, because its rollout has not reached the cluster, or because a
// cache is behind (package addon/config). Whatever there is of the add-on stays as it is, and no condition tells of an
// error, until something changes that the add-on depends on.
var ErrNotYet = errors.New("the configuration of the add-on is not the one that this cluster is to have now")
