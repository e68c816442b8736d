# Unpacks /source into /build, where confine.sh runs it: BYTES FILES deb|rpm|image [TAG]
# Prints the name of the content, then the bytes and files that were unpacked.
set -eu
bytes=$1 files=$2 kind=$3
took_bytes=0 took_files=0

fail() {
    echo "$1" >&2
    exit 1
}

# Writes the output of a command to /scratch/stream. The kernel limits its length; who reaches the limit says nothing of it.
stream() {
    status=0
    ("$@") >/scratch/stream 2>/scratch/errors || status=$?
    took_bytes=$((took_bytes + $(wc -c </scratch/stream)))
    [ "$took_bytes" -lt "$bytes" ] || fail "it has $bytes bytes or more"
    cat /scratch/errors >&2
    [ "$status" = 0 ] || exit "$status"
}

# Decompresses a file.
plain() {
    case $(od -An -tx1 -N4 "$1" | tr -d ' ') in
    1f8b*) gzip -dc ;;
    fd377a58) xz -dc ;;
    425a68*) bzip2 -dc ;;
    28b52ffd) zstd -dc ;;
    *) cat ;;
    esac <"$1"
}

# Counts the files that a command lists. The command ends early if there are too many.
count() {
    took_files=$((took_files + $("$@" </scratch/stream 2>/dev/null | head -n $((files + 1)) | wc -l)))
    [ "$took_files" -le "$files" ] || fail "it has more than $files files"
}

# The content of /dev is the machine's: containers have none of their own.
take_tar() {
    count tar --list
    tar --extract --directory=/build --no-same-owner --no-same-permissions --anchored --exclude='dev/*' --exclude='./dev/*' "$@" \
        </scratch/stream
    settle
}

# No other user can change a file, and the next archive can add to each folder.
settle() {
    chmod --recursive a-s,u+rwX,go-w /build
}

# Removes what the whiteouts of an image's layer name (OCI image specification, "Whiteouts").
remove_whited_out() {
    { tar --list </scratch/stream | grep -E '(^|/)\.wh\.[^/]+$' || true; } | while read -r name; do
        path=/build/$name
        case ${path##*/} in
        .wh..wh..opq) [ ! -d "${path%/*}" ] || find "${path%/*}" -mindepth 1 -delete ;;
        *) rm -rf "${path%/*}/${path##*/.wh.}" ;;
        esac
    done
}

case $kind in
deb)
    dpkg-deb --show --showformat='${Package}=${Version}\n' /source
    stream dpkg-deb --fsys-tarfile /source
    take_tar
    ;;
rpm)
    rpm --query --package --nosignature --queryformat '%{NAME}=%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n' /source
    stream rpm2cpio /source
    count cpio --list --quiet
    cd /build
    cpio --extract --make-directories --no-absolute-filenames --no-preserve-owner --quiet </scratch/stream
    settle
    ;;
image)
    form=oci
    if [ -f /source ]; then
        stream plain /source
        case $(tar --list </scratch/stream 2>/dev/null | grep -xE '(\./)?(oci-layout|manifest\.json)' || true) in
        *oci-layout*) form=oci-archive ;;
        *manifest.json*) form=docker-archive ;;
        *)
            sha256sum </source | cut -c 1-64 | sed 's/^/sha256:/'
            take_tar
            echo "$took_bytes $took_files"
            exit
            ;;
        esac
    fi
    # Layers count, and not the archive with them.
    took_bytes=0
    command -v skopeo >/dev/null || exit 127
    # The copy has a fixed name.
    skopeo copy --quiet --insecure-policy --tmpdir /scratch "$form:/source${4:+:$4}" oci:/scratch/image:build
    skopeo inspect --format '{{.Digest}}{{range .Layers}} {{.}}{{end}}' oci:/scratch/image:build >/scratch/layers
    read -r digest layers </scratch/layers
    echo "$digest"
    for layer in $layers; do
        stream plain "/scratch/image/blobs/${layer%%:*}/${layer#*:}"
        remove_whited_out
        take_tar --no-anchored --exclude='.wh.*'
    done
    ;;
esac
echo "$took_bytes $took_files"
