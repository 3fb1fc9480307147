# Images from winlab's CD into containerd, for containerd.ps1 and load.ps1. Not called by winlab.
. (Join-Path $PSScriptRoot 'common.ps1')

$PinnedLabel = 'io.cri-containerd.pinned=pinned'

function Get-Images {
    $images = @{}
    foreach ($line in Invoke-Native "$ContainerdFolder\ctr.exe" @('-n', 'k8s.io', 'images', 'ls')) {
        $fields = $line -split '\s+'
        if ($fields.Count -ge 3 -and $fields[2] -like 'sha256:*') { $images[$fields[0]] = $fields[2] }
    }
    return $images
}

# What an OCI archive would give: names and digests. Docker's older archives have no index: nothing is known of them
function Get-ArchiveImages([string]$Path) {
    $images = @{}
    $names = Invoke-Native 'tar.exe' @('-tf', $Path)
    if ($names -contains 'index.json') {
        $index = (Invoke-Native 'tar.exe' @('-xOf', $Path, 'index.json')) -join "`n"
        foreach ($manifest in (ConvertFrom-Json -InputObject $index).manifests) {
            $name = "$($manifest.annotations.'io.containerd.image.name')"
            if ($name) { $images[$name] = "$($manifest.digest)" }
        }
    }
    return $images
}

# Imports the CD's images that containerd has not, pinned against the kubelet's clean-up; true if there were any.
# containerd checks every blob against its digest
function Import-Images {
    $folder = Join-Path $Payload 'images'
    $files = @()
    if (Test-Path -LiteralPath $folder) { $files = @(Get-ChildItem -LiteralPath $folder -Filter '*.tar') }
    if ($files.Count -eq 0) { return $false }
    $have = Get-Images
    $wanted = @{}
    $changed = $false
    foreach ($file in $files) {
        $inside = Get-ArchiveImages $file.FullName
        $missing = @($inside.Keys | Where-Object { $have[$_] -ne $inside[$_] })
        if ($inside.Count -gt 0 -and $missing.Count -eq 0) { continue }
        Write-Progressing "importing $($file.Name)"
        try {
            Invoke-Native "$ContainerdFolder\ctr.exe" @(
                '-n', 'k8s.io', 'images', 'import', '--local', '--label', $PinnedLabel, $file.FullName) | Out-Null
        } catch {
            throw "containerd does not take '$($file.Name)' from winlab's CD: $($_.Exception.Message)"
        }
        foreach ($name in $missing) { $wanted[$name] = $file.Name }
        $changed = $true
    }
    if ($wanted.Count -gt 0) {
        $have = Get-Images
        foreach ($name in $wanted.Keys) {
            if (-not $have.ContainsKey($name)) {
                throw "containerd took '$($wanted[$name])' but has no image '$name': is it for another Windows?"
            }
        }
    }
    return $changed
}
