# containerd as a service, with the CD's images. Settings: config, environment.
. (Join-Path $PSScriptRoot 'images.ps1')
$settings = Read-Settings @($input)

# Waits until containerd answers; its pipe exists before that
function Wait-Containerd {
    for ($try = 0; $try -lt 90; $try++) {
        if ((Get-ServiceState 'containerd') -eq 'running') {
            try {
                Invoke-Native "$ContainerdFolder\ctr.exe" @('version') | Out-Null
                return
            } catch {
                Write-Progressing 'containerd does not answer yet'
            }
        }
        Start-Sleep -Seconds 1
    }
    $last = @(Get-Content -LiteralPath $ContainerdLog -Encoding UTF8 -Tail 5 -ErrorAction SilentlyContinue) -join "`n"
    $state = Get-ServiceState 'containerd'
    throw "containerd does not answer after 90 tries (the service is $state). Its log ends with: $last"
}

# Removes files that Windows tools left behind: containerd would use them instead of the lab's own
function Remove-StrayNetworks {
    $removed = $false
    if (-not (Test-Path -LiteralPath $NetworkFolder)) { return $false }
    foreach ($file in Get-ChildItem -LiteralPath $NetworkFolder -File) {
        try {
            $network = ConvertFrom-Json -InputObject (Get-Text $file.FullName)
        } catch {
            Write-Progressing "$($file.Name) is no JSON, and stays"
            continue
        }
        $kinds = @($network.name, $network.type) + @($network.plugins | ForEach-Object { $_.type })
        if ($kinds -contains 'nat') {
            Remove-Item -LiteralPath $file.FullName -Force
            $removed = $true
        }
    }
    return $removed
}

Invoke-Step {
    $feature = Get-FeatureState 'Containers'
    if ($feature -eq 'absent') { throw 'The feature Containers is not installed: features.ps1 comes first.' }
    if ($feature -eq 'pending' -or (Test-RestartPending)) { throw 'Windows must be restarted first.' }
    if (-not "$($settings.config)".Trim()) { throw 'settings.config is empty: it must be the text of config.toml.' }
    $config = "$($settings.config)"
    if ($config -match '[^\x00-\x7f]') { throw 'settings.config has characters outside ASCII.' }
    [string[]]$variables = @()
    if ($settings.environment) { $variables = $settings.environment }
    $programs = Get-Listed 'programs'
    foreach ($name in @($programs.Keys)) {
        if ($name -notmatch '^(containerd.*|ctr|crictl|runhcs)\.exe$') { $programs.Remove($name) }
    }
    foreach ($name in 'containerd.exe', 'ctr.exe') {
        if (-not $programs.ContainsKey($name)) { throw "winlab's CD has no $name." }
    }

    # the command that --register-service gives the service
    $command = "`"$ContainerdFolder\containerd.exe`" --run-service --log-file $ContainerdLog"
    $stale = @($programs.Keys | Where-Object { Test-Stale "$ContainerdFolder\$_" $programs[$_] })
    $service = Get-ServiceState 'containerd'
    $other = (Get-Text "$ContainerdFolder\config.toml") -cne $config -or
        (Get-ServiceCommand 'containerd') -cne $command
    $stray = (Get-ContainerdEnvironment) -cne ($variables -join "`n")
    $changed = $stale.Count -gt 0 -or $service -eq 'absent' -or $other -or $stray
    $ran = @()
    if ($changed) { $ran = @(Stop-Running 'kube-proxy', 'kubelet', 'containerd') }

    Set-FolderAcl $ContainerdFolder $ProgramsFolder
    New-Folder $NetworkFolder, $PluginFolder, (Split-Path -Parent $ContainerdLog)
    foreach ($name in $stale) {
        Write-Progressing "copying $name"
        Install-File (Join-Path $Payload "programs\$name") "$ContainerdFolder\$name" $programs[$name] | Out-Null
    }
    Write-Text "$ContainerdFolder\config.toml" $config | Out-Null
    $pipe = 'npipe:////./pipe/containerd-containerd'
    $changed = (Write-Text "$env:USERPROFILE\.crictl\crictl.yaml" `
        "runtime-endpoint: $pipe`nimage-endpoint: $pipe`n") -or $changed
    $changed = (Remove-StrayNetworks) -or $changed

    if ($service -eq 'absent') {
        $register = '--register-service', '--log-file', $ContainerdLog
        Invoke-Native "$ContainerdFolder\containerd.exe" $register | Out-Null
    }
    Set-NativeService 'containerd' 'Containerd' $command | Out-Null
    if ($stray) { Set-ContainerdEnvironment $variables }
    if ((Get-ServiceState 'containerd') -ne 'running') {
        Start-Service -Name 'containerd'
        $changed = $true
    }
    Wait-Containerd
    Start-Again @($ran | Where-Object { $_ -ne 'containerd' })
    $changed = (Import-Images) -or $changed
    Write-Text $ImagesFrom (Get-Sha256 (Join-Path $Payload 'payload.json')) | Out-Null
    return @{ changed = [bool]$changed }
}
