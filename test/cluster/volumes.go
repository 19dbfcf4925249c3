package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// volumes are the folders and addresses that stand for what a kubelet gives a container.
type volumes struct {
	dir        string
	kubeconfig string
	synced     time.Time
	written    map[string]map[string]string // by volume: path → contents

	mu        sync.Mutex
	addresses map[string]string // by the name of the container's port
}

func newVolumes(dir string) *volumes {
	return &volumes{dir: dir, written: map[string]map[string]string{}, addresses: map[string]string{}}
}

// folder stands for a volume.
func (v *volumes) folder(volume string) string { return filepath.Join(v.dir, volume) }

// address stands for a port of the container, by its name; it is chosen once.
func (v *volumes) address(port string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.addresses[port] == "" {
		addr, err := harness.FreeAddr()
		if err != nil {
			panic(err) // no port is free on this machine
		}
		v.addresses[port] = addr
	}
	return v.addresses[port]
}

// prepare makes the folders and the kubeconfig of a new Pod's ServiceAccount, which must be there. Claims keep what they
// hold, other volumes begin empty.
func (v *volumes) prepare(ctx context.Context, c *Cluster, set *appsv1.StatefulSet) error {
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if err := os.RemoveAll(v.folder(volume.Name)); err != nil {
			return err
		}
		delete(v.written, volume.Name)
	}
	for _, mount := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
		if err := os.MkdirAll(v.folder(mount.Name), 0o755); err != nil {
			return err
		}
	}
	v.synced = time.Time{}
	account := set.Spec.Template.Spec.ServiceAccountName
	cfg, err := c.accountConfig(ctx, set.Namespace, account)
	if err != nil {
		return err
	}
	if v.kubeconfig, err = c.Kubeconfig(set.Namespace+"."+account, cfg); err != nil {
		return err
	}
	return v.sync(ctx, c.Client, set)
}

// syncEvery is how often Secrets are looked at. A kubelet takes about a minute; tests of what a late volume does kill the
// worker before.
const syncEvery = time.Second

// sync brings the files of volumes that come from Secrets up to date.
func (v *volumes) sync(ctx context.Context, c client.Client, set *appsv1.StatefulSet) error {
	if time.Since(v.synced) < syncEvery {
		return nil
	}
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(set.Namespace)); err != nil {
		return err
	}
	secrets := map[string]corev1.Secret{}
	for _, secret := range list.Items {
		secrets[secret.Name] = secret
	}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		files, err := filesOf(volume, secrets)
		if err != nil {
			return err
		}
		if files == nil || (v.written[volume.Name] != nil && maps.Equal(files, v.written[volume.Name])) {
			continue
		}
		if err := project(v.folder(volume.Name), files); err != nil {
			return err
		}
		v.written[volume.Name] = files
	}
	v.synced = time.Now()
	return nil
}

// filesOf is what a volume from Secrets holds; nil for other volumes.
func filesOf(volume corev1.Volume, secrets map[string]corev1.Secret) (map[string]string, error) {
	var sources []corev1.SecretProjection
	switch {
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.Secret == nil {
				return nil, fmt.Errorf("volume %s has a source that is no Secret, which a Pool can't give", volume.Name)
			}
			sources = append(sources, *source.Secret)
		}
	case volume.Secret != nil:
		name := corev1.LocalObjectReference{Name: volume.Secret.SecretName}
		sources = []corev1.SecretProjection{{LocalObjectReference: name, Items: volume.Secret.Items, Optional: volume.Secret.Optional}}
	case volume.EmptyDir != nil:
		return nil, nil
	default:
		return nil, fmt.Errorf("volume %s is of a kind that a Pool can't give", volume.Name)
	}
	files := map[string]string{}
	for _, source := range sources {
		secret, ok := secrets[source.Name]
		if !ok {
			if source.Optional == nil || !*source.Optional {
				return nil, fmt.Errorf("volume %s needs Secret %s, which is not there", volume.Name, source.Name)
			}
			continue
		}
		items := source.Items
		if items == nil {
			for key := range secret.Data {
				items = append(items, corev1.KeyToPath{Key: key, Path: key})
			}
		}
		for _, item := range items {
			if value, ok := secret.Data[item.Key]; ok {
				files[item.Path] = string(value)
			}
		}
	}
	return files, nil
}

// project gives a folder these files, all at once, as a kubelet does: they are links into a folder that is behind a link
// of its own, ..data, which is what changes.
func project(dir string, files map[string]string) error {
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for path, contents := range files {
		if err := os.WriteFile(filepath.Join(fresh, path), []byte(contents), 0o600); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "..data")
	former, err := os.Readlink(data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(fresh), link); err != nil {
		return err
	}
	if err := os.Rename(link, data); err != nil {
		return err
	}
	for path := range files {
		if err := os.Symlink(filepath.Join("..data", path), filepath.Join(dir, path)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := dropDangling(dir); err != nil || former == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, former))
}

// dropDangling removes links to files that are no more.
func dropDangling(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// command is the container's, with folders for its mounts, addresses of 127.0.0.1 for its ports, the environment that the
// template gives it, and a kubeconfig for what a Pod finds in its ServiceAccount's folder.
func (v *volumes) command(set *appsv1.StatefulSet, binary string) (harness.Command, error) {
	container := set.Spec.Template.Spec.Containers[0]
	command := harness.Command{Name: "the worker of " + set.Namespace + "/" + set.Name, Path: binary}
	for _, arg := range container.Args {
		flag, value, ok := strings.Cut(arg, "=")
		if ok {
			arg = flag + "=" + v.local(container, value)
		}
		command.Args = append(command.Args, arg)
	}
	command.Args = append(command.Args, "--kubeconfig="+v.kubeconfig)
	for _, env := range container.Env {
		switch {
		case env.ValueFrom == nil:
			command.Env = append(command.Env, env.Name+"="+env.Value)
		case env.ValueFrom.FieldRef != nil && env.ValueFrom.FieldRef.FieldPath == "metadata.name":
			command.Env = append(command.Env, env.Name+"="+set.Name+"-0")
		case env.ValueFrom.FieldRef != nil && env.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			command.Env = append(command.Env, env.Name+"="+set.Namespace)
		default:
			return command, fmt.Errorf("variable %s comes from what a Pool can't give", env.Name)
		}
	}
	return command, nil
}

// local is a flag's value on this machine: a folder for a mount, an address for a port.
func (v *volumes) local(container corev1.Container, value string) string {
	for _, mount := range container.VolumeMounts {
		if rest, ok := strings.CutPrefix(value, mount.MountPath); ok && (rest == "" || rest[0] == '/') {
			return v.folder(mount.Name) + rest
		}
	}
	for _, port := range container.Ports {
		if value == fmt.Sprintf(":%d", port.ContainerPort) {
			return v.address(port.Name)
		}
	}
	return value
}
