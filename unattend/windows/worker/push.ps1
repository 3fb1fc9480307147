# Replaces one program with the one on the CD under push/, or restores the original. Settings: program, restore.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

Invoke-Step {
    $name = "$($settings.program)"
    if ($name -notmatch '^[A-Za-z0-9][A-Za-z0-9-]*\.exe$') { throw "'$name' is no name of a program." }
    $target = $ProgramFolder, $ContainerdFolder, $PluginFolder | ForEach-Object { "$_\$name" } |
        Where-Object { Test-Path -LiteralPath $_ } | Select-Object -First 1
    if (-not $target) { throw "'$name' is not installed here: there is nothing to swap." }
    $original = "$target.winlab-original"
    # in the order in which they must be stopped
    $services = @()
    switch ($name) {
        'kubelet.exe' { $services = @('kubelet') }
        'kube-proxy.exe' { $services = @('kube-proxy') }
        'kube-log-runner.exe' { $services = @('kube-proxy', 'kubelet') }
        'containerd.exe' { $services = @('kubelet', 'containerd') }
    }

    # The services that must run at the end, in the order in which they are started. These are the services that run now
    # and, in a node that has joined, those that an earlier run has stopped and, after an interruption or error, not
    # started again
    $states = @('running')
    if (Test-Joined) { $states += 'stopped' }
    $wanted = @($services | Where-Object { $states -contains (Get-ServiceState $_) })
    [array]::Reverse($wanted)
    try {
        if ($settings.restore) {
            if (-not (Test-Path -LiteralPath $original)) { return @{ changed = $false; sha256 = Get-Sha256 $target } }
            Stop-Running $services | Out-Null
            Move-Over $original $target
        } else {
            $source = Join-Path $Payload "push\$name"
            if (-not (Test-Path -LiteralPath $source)) { throw "winlab's CD has no push\$name." }
            $digest = Get-Sha256 $source
            if ((Get-Sha256 $target) -eq $digest) { return @{ changed = $false; sha256 = $digest } }
            Stop-Running $services | Out-Null
            if (-not (Test-Path -LiteralPath $original)) {
                # under another name until it is complete
                [System.IO.File]::Copy($target, "$original.winlab-new", $true)
                Move-Item -LiteralPath "$original.winlab-new" -Destination $original
            }
            Install-File $source $target $digest | Out-Null
        }
    } finally {
        # also after a failure, because nothing else would start them
        Start-Again @($wanted | Where-Object { (Get-ServiceState $_) -ne 'running' })
    }
    return @{ changed = $true; sha256 = Get-Sha256 $target }
}
